// sarama over TLS: an idempotent producer, transactions, and a group of one. The argument is the login as JSON.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

type Login struct {
	Bootstrap, Mechanism, User, Password, Token, CA, Certificate, Name string
}

func check(err error) {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}

// conversation adapts xdg-go/scram to sarama's interface.
type conversation struct {
	hash scram.HashGeneratorFcn
	*scram.ClientConversation
}

func (c *conversation) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err == nil {
		c.ClientConversation = client.NewConversation()
	}
	return err
}

type tokens string

func (t tokens) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(t)}, nil
}

func (login Login) config(id string) *sarama.Config {
	pem, err := os.ReadFile(login.CA)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	settings := sarama.NewConfig()
	settings.Version = sarama.V4_1_0_0
	settings.Net.TLS.Enable = true
	settings.Net.TLS.Config = &tls.Config{RootCAs: pool}
	if login.Certificate != "" {
		certificate, err := tls.LoadX509KeyPair(login.Certificate, login.Certificate)
		check(err)
		settings.Net.TLS.Config.Certificates = []tls.Certificate{certificate}
	}
	if login.Mechanism != "" {
		settings.Net.SASL.Enable = true
		settings.Net.SASL.Mechanism = sarama.SASLMechanism(login.Mechanism)
		settings.Net.SASL.User, settings.Net.SASL.Password = login.User, login.Password
		settings.Net.SASL.TokenProvider = tokens(login.Token)
		hash := map[string]scram.HashGeneratorFcn{"SCRAM-SHA-256": scram.SHA256, "SCRAM-SHA-512": scram.SHA512}[login.Mechanism]
		settings.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &conversation{hash: hash} }
	}
	settings.Net.MaxOpenRequests = 1
	settings.Producer.RequiredAcks = sarama.WaitForAll
	settings.Producer.Idempotent = true
	settings.Producer.Return.Successes = true
	settings.Producer.Transaction.ID = id
	settings.Consumer.Offsets.AutoCommit.Enable = false
	settings.Consumer.Offsets.Initial = sarama.OffsetOldest
	settings.Consumer.IsolationLevel = sarama.ReadCommitted
	return settings
}

type reader struct {
	read int
	end  context.CancelFunc
}

func (*reader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*reader) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (r *reader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		if r.read++; r.read == 10 {
			session.Commit()
			r.end()
			break
		}
	}
	return nil
}

func main() {
	var login Login
	check(json.Unmarshal([]byte(os.Args[1]), &login))
	addresses := []string{login.Bootstrap}
	send := func(producer sarama.SyncProducer, kind string) {
		for i := 0; i < 5; i++ {
			value := sarama.StringEncoder(fmt.Sprintf("%s-%d", kind, i))
			_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: login.Name, Value: value})
			check(err)
		}
	}

	producer, err := sarama.NewSyncProducer(addresses, login.config(""))
	check(err)
	send(producer, "plain")
	check(producer.Close())

	producer, err = sarama.NewSyncProducer(addresses, login.config(login.Name))
	check(err)
	check(producer.BeginTxn())
	send(producer, "committed")
	check(producer.CommitTxn())
	check(producer.BeginTxn())
	send(producer, "aborted")
	check(producer.AbortTxn())
	check(producer.Close())

	group, err := sarama.NewConsumerGroup(addresses, login.Name, login.config(""))
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	handler := &reader{end: cancel}
	for ctx.Err() == nil {
		check(group.Consume(ctx, []string{login.Name}, handler))
	}
	check(group.Close())
	if handler.read != 10 {
		check(fmt.Errorf("read %d records", handler.read))
	}
	fmt.Println("OK")
}
