// franz-go while broker or program are killed; the lines on stdout are those of tests/support/foreign_workload.py.
package main

import (
	"context"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var (
	bootstrap, name, incarnation, directory string
	partitions                              int
	out                                     sync.Mutex
	ctx                                     = context.Background()
	smallBatches                            = kgo.ProducerBatchMaxBytes(12 << 10) // a batch must fit into a segment
)

func say(words ...any) {
	line := strings.ReplaceAll(strings.TrimSuffix(fmt.Sprintln(words...), "\n"), "\n", " ")
	out.Lock()
	defer out.Unlock()
	fmt.Fprintln(os.Stdout, line)
}

func asked(file string) bool {
	_, err := os.Stat(filepath.Join(directory, file))
	return err == nil
}

func client(options ...kgo.Opt) *kgo.Client {
	options = append(options, kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), smallBatches)
	made, err := kgo.NewClient(options...)
	if err != nil {
		say("F", "client", err)
		os.Exit(1)
	}
	return made
}

func transactional(id string) *kgo.Client {
	made := client(kgo.TransactionalID(id), kgo.TransactionTimeout(time.Minute))
	initialise(made)
	return made
}

// Ends now what an earlier client of the id left open; by itself franz-go does it with the first record, and a
// consumer that waits for the offsets of that open transaction would never get so far before the transaction's timeout.
func initialise(made *kgo.Client) {
	for _, _, err := made.ProducerID(ctx); err != nil; _, _, err = made.ProducerID(ctx) {
		time.Sleep(100 * time.Millisecond)
	}
}

func plain() {
	producer := client(kgo.ProducerLinger(2 * time.Millisecond))
	defer producer.Close()
	for n := 0; !asked("writers.stop"); n++ {
		for p := 0; p < partitions; p++ {
			value := fmt.Sprintf("%s-%d-%d", incarnation, p, n)
			record := &kgo.Record{Topic: name + "-plain", Partition: int32(p), Value: []byte(value)}
			producer.Produce(ctx, record, func(told *kgo.Record, err error) {
				if err != nil {
					say("N", value, err)
				} else {
					say("A", told.Partition, told.Offset, value)
				}
			})
		}
		time.Sleep(3 * time.Millisecond)
	}
	if err := producer.Flush(ctx); err != nil {
		say("F", "plain", err)
	}
}

func transactions(writer int) {
	id := fmt.Sprintf("%s-w%d", name, writer)
	producer := transactional(id)
	for number := 0; !asked("writers.stop"); number++ {
		if err := transaction(producer, id, number); err != nil {
			say("R", "writer", err)
			producer.Close()
			producer = transactional(id)
		}
	}
	producer.Close()
}

// One transaction; an error means that the client has to be made anew.
func transaction(producer *kgo.Client, id string, number int) error {
	label := fmt.Sprintf("%s/%s.%d", id, incarnation, number)
	count := 1 + rand.Intn(5)
	say("T", label, count)
	if err := producer.BeginTransaction(); err != nil {
		say("U", label)
		return err
	}
	var lock sync.Mutex
	var failure error
	for index := 0; index < count; index++ {
		value := fmt.Sprintf("%s/%d", label, index)
		record := &kgo.Record{Topic: name + "-txn", Partition: int32((number + index) % partitions), Value: []byte(value)}
		producer.Produce(ctx, record, func(_ *kgo.Record, err error) {
			lock.Lock()
			defer lock.Unlock()
			if err != nil && failure == nil {
				failure = err
			}
		})
	}
	wanted := rand.Intn(5) > 0
	ending := producer.Flush
	if !wanted && rand.Intn(2) == 0 {
		// What has not left yet is thrown away.
		ending = producer.AbortBufferedRecords
	}
	if err := ending(ctx); err != nil {
		say("U", label)
		return err
	}
	lock.Lock()
	failed := failure
	lock.Unlock()
	if !wanted || failed != nil {
		if err := producer.EndTransaction(ctx, kgo.TryAbort); err != nil {
			say("U", label)
			return err
		}
		say("X", label)
		if wanted {
			say("B", "writer", failed)
		}
		return nil
	}
	say("K", label)
	err := producer.EndTransaction(ctx, kgo.TryCommit)
	if err == nil {
		say("C", label)
		return nil
	}
	// The outcome is open; an abort is what the client asks for, and whether it may go on after it.
	say("U", label)
	if again := producer.EndTransaction(ctx, kgo.TryAbort); again != nil {
		return fmt.Errorf("%v, then %w", err, again)
	}
	say("B", "writer", err)
	return nil
}

func transform() {
	for !asked("all.stop") {
		if err := life(); err != nil {
			say("R", "copy", err)
		}
	}
}

func life() error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap), kgo.RecordPartitioner(kgo.ManualPartitioner()), smallBatches,
		kgo.TransactionalID(name+"-copy"), kgo.TransactionTimeout(time.Minute),
		kgo.ConsumerGroup(name+"-copy"), kgo.ConsumeTopics(name+"-plain"), kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(2*time.Second), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequireStableFetchOffsets())
	if err != nil {
		return err
	}
	defer session.Close()
	initialise(session.Client())
	for !asked("all.stop") {
		brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		fetches := session.PollRecords(brief, 1000)
		cancel()
		if fetches.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			return err
		}
		fetches.EachRecord(func(in *kgo.Record) {
			session.Produce(ctx, &kgo.Record{Topic: name + "-copy", Partition: in.Partition, Value: in.Value}, nil)
		})
		committed, err := session.End(ctx, kgo.TryCommit)
		if err != nil {
			return err
		}
		if !committed {
			say("B", "copy", "not committed")
		}
	}
	return nil
}

func main() {
	bootstrap, name, incarnation, directory = os.Args[1], os.Args[2], os.Args[4], os.Args[5]
	partitions, _ = strconv.Atoi(os.Args[3])
	var writers, copier sync.WaitGroup
	writers.Go(plain)
	writers.Go(func() { transactions(0) })
	writers.Go(func() { transactions(1) })
	copier.Go(transform)
	writers.Wait()
	say("D")
	copier.Wait()
	say("E")
}
