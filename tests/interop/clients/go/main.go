// franz-go: idempotent producer, a group transact session with one abort, a read_committed reader, admin.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const records = 5000

func check(err error) {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	seeds := kgo.SeedBrokers(os.Args[1])
	source := fmt.Sprintf("go-in-%d", time.Now().UnixNano())
	sink, id := source+"-out", source+"-id"

	client, err := kgo.NewClient(seeds)
	check(err)
	defer client.Close()
	admin := kadm.NewClient(client)
	_, err = admin.CreateTopics(ctx, 3, 1, nil, source, sink)
	check(err)
	for i := 0; i < records; i++ {
		record := &kgo.Record{Topic: source, Key: []byte(fmt.Sprint("k", i%50)), Value: []byte(fmt.Sprint("v", i))}
		client.Produce(ctx, record, func(_ *kgo.Record, err error) { check(err) })
	}
	check(client.Flush(ctx))

	session, err := kgo.NewGroupTransactSession(seeds, kgo.TransactionalID(id), kgo.ConsumerGroup(id),
		kgo.ConsumeTopics(source), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())
	check(err)
	for done, transactions := 0, 0; done < records; transactions++ {
		aborts := transactions == 1
		fetches := session.PollRecords(ctx, 700)
		check(fetches.Err())
		check(session.Begin())
		count := 0
		fetches.EachRecord(func(in *kgo.Record) {
			count++
			out := &kgo.Record{Topic: sink, Key: in.Key, Value: in.Value}
			session.Produce(ctx, out, func(_ *kgo.Record, err error) {
				if !aborts {
					check(err)
				}
			})
		})
		committed, err := session.End(ctx, kgo.TransactionEndTry(!aborts))
		check(err)
		if committed {
			done += count
		}
	}
	session.Close()

	reader, err := kgo.NewClient(seeds, kgo.ConsumeTopics(sink), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	check(err)
	defer reader.Close()
	distinct, read := map[string]bool{}, 0
	for read < records {
		fetches := reader.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) { read++; distinct[string(record.Value)] = true })
	}
	if read != records || len(distinct) != records {
		check(fmt.Errorf("read %d records, %d distinct, of %d", read, len(distinct), records))
	}

	listed, err := admin.ListTransactions(ctx, nil, nil)
	check(err)
	if _, ok := listed[id]; !ok {
		check(fmt.Errorf("%s is not among the listed transactions", id))
	}
	lag, err := admin.Lag(ctx, id)
	check(err)
	if lag[id].Lag.Total() > 3*3 { // markers at the ends of the source's partitions do not count as read
		check(fmt.Errorf("lag %d", lag[id].Lag.Total()))
	}
	_, err = admin.DeleteTopics(ctx, source, sink)
	check(err)
	fmt.Println("OK")
}
