// sarama while broker or program are killed; the lines on stdout are those of tests/support/foreign_workload.py.
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

	"github.com/IBM/sarama"
)

var (
	bootstrap, name, incarnation, directory string
	partitions                              int
	out                                     sync.Mutex
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

func config(id string) *sarama.Config {
	settings := sarama.NewConfig()
	settings.Version = sarama.V4_1_0_0
	settings.Metadata.Retry.Max = 100
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Idempotent = true
	settings.Net.MaxOpenRequests = 1
	settings.Producer.Partitioner = sarama.NewManualPartitioner
	settings.Producer.Return.Successes = true
	settings.Producer.Return.Errors = true
	// Three tries within 300 ms are the default; a broker's restart takes longer.
	settings.Producer.Retry.Max = 300
	settings.Producer.Retry.Backoff = 100 * time.Millisecond
	settings.Producer.Transaction.ID = id
	settings.Producer.Transaction.Retry.Max = 300
	settings.Producer.Transaction.Retry.Backoff = 100 * time.Millisecond
	settings.Producer.Transaction.Timeout = time.Minute
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	settings.Consumer.Group.Session.Timeout = 6 * time.Second
	settings.Consumer.Group.Heartbeat.Interval = time.Second
	settings.Consumer.MaxWaitTime = 200 * time.Millisecond
	return settings
}

// The constructor raises where no broker listens; applications try again.
func producer(id string) sarama.SyncProducer {
	for {
		made, err := sarama.NewSyncProducer([]string{bootstrap}, config(id))
		if err == nil {
			return made
		}
		time.Sleep(300 * time.Millisecond)
	}
}

func message(topic string, partition int32, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: name + topic, Partition: partition, Value: sarama.StringEncoder(value)}
}

func plain() {
	sender, err := sarama.NewAsyncProducer([]string{bootstrap}, config(""))
	if err != nil {
		say("F", "plain", err)
		return
	}
	var told sync.WaitGroup
	told.Go(func() {
		for acked := range sender.Successes() {
			say("A", acked.Partition, acked.Offset, string(acked.Value.(sarama.StringEncoder)))
		}
	})
	told.Go(func() {
		for refused := range sender.Errors() {
			say("N", string(refused.Msg.Value.(sarama.StringEncoder)), refused.Err)
		}
	})
	for n := 0; !asked("writers.stop"); n++ {
		for p := 0; p < partitions; p++ {
			sender.Input() <- message("-plain", int32(p), fmt.Sprintf("%s-%d-%d", incarnation, p, n))
		}
		time.Sleep(3 * time.Millisecond)
	}
	sender.AsyncClose()
	told.Wait()
}

func transactions(writer int) {
	id := fmt.Sprintf("%s-w%d", name, writer)
	sender := producer(id)
	for number := 0; !asked("writers.stop"); number++ {
		if err := transaction(sender, id, number); err != nil {
			say("R", "writer", err)
			_ = sender.Close()
			sender = producer(id)
		}
	}
	_ = sender.Close()
}

// One transaction; an error means that the client has to be made anew.
func transaction(sender sarama.SyncProducer, id string, number int) error {
	label := fmt.Sprintf("%s/%s.%d", id, incarnation, number)
	count := 1 + rand.Intn(5)
	say("T", label, count)
	err := sender.BeginTxn()
	if err == nil {
		var messages []*sarama.ProducerMessage
		for index := 0; index < count; index++ {
			messages = append(messages, message("-txn", int32((number+index)%partitions), fmt.Sprintf("%s/%d", label, index)))
		}
		err = sender.SendMessages(messages)
	}
	if err == nil && rand.Intn(5) > 0 {
		say("K", label)
		if err = sender.CommitTxn(); err == nil {
			say("C", label)
			return nil
		}
	}
	if sender.TxnStatus()&sarama.ProducerTxnFlagFatalError == 0 {
		if second := sender.AbortTxn(); second == nil {
			say("X", label)
			if err != nil {
				say("B", "writer", err)
			}
			return nil
		} else {
			err = second
		}
	}
	say("U", label)
	return err
}

type copier struct {
	sender sarama.SyncProducer
	lock   sync.Mutex
	failed error
	end    context.CancelFunc
}

func (*copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case <-session.Context().Done():
			return nil
		case first, more := <-claim.Messages():
			if !more {
				return nil
			}
			batch := []*sarama.ConsumerMessage{first}
			for len(batch) < 500 && len(claim.Messages()) > 0 {
				next, more := <-claim.Messages()
				if !more {
					break
				}
				batch = append(batch, next)
			}
			if err := c.copy(batch); err != nil {
				return err
			}
		}
	}
}

// All claims share the producer, so one at a time; after the first error nothing more is copied in this life.
func (c *copier) copy(batch []*sarama.ConsumerMessage) error {
	c.lock.Lock()
	defer c.lock.Unlock()
	if c.failed != nil {
		return c.failed
	}
	err := c.sender.BeginTxn()
	if err == nil {
		var messages []*sarama.ProducerMessage
		for _, in := range batch {
			messages = append(messages, message("-copy", in.Partition, string(in.Value)))
		}
		err = c.sender.SendMessages(messages)
	}
	if err == nil {
		err = c.sender.AddMessageToTxn(batch[len(batch)-1], name+"-copy", nil)
	}
	if err == nil {
		err = c.sender.CommitTxn()
	}
	if err != nil {
		c.failed = err
		c.end()
	}
	return err
}

func life() error {
	sender := producer(name + "-copy")
	defer sender.Close()
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, name+"-copy", config(""))
	if err != nil {
		return err
	}
	defer group.Close()
	ctx, end := context.WithCancel(context.Background())
	defer end()
	handler := &copier{sender: sender, end: end}
	go func() {
		for ctx.Err() == nil && !asked("all.stop") {
			time.Sleep(50 * time.Millisecond)
		}
		end()
	}()
	for ctx.Err() == nil {
		// It returns at every rebalance and when the connection is lost; calling it again is its contract.
		if err := group.Consume(ctx, []string{name + "-plain"}, handler); err != nil && ctx.Err() == nil {
			say("B", "consume", err)
			time.Sleep(200 * time.Millisecond)
		}
	}
	handler.lock.Lock()
	defer handler.lock.Unlock()
	return handler.failed
}

func transform() {
	for !asked("all.stop") {
		if err := life(); err != nil {
			say("R", "copy", err)
		}
	}
}

func main() {
	bootstrap, name, incarnation, directory = os.Args[1], os.Args[2], os.Args[4], os.Args[5]
	partitions, _ = strconv.Atoi(os.Args[3])
	var writers, copying sync.WaitGroup
	writers.Go(plain)
	writers.Go(func() { transactions(0) })
	writers.Go(func() { transactions(1) })
	copying.Go(transform)
	writers.Wait()
	say("D")
	copying.Wait()
	say("E")
}
