// franz-go over TLS: an idempotent producer, transactions, and a group of one. The argument is the login as JSON.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
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

func (login Login) options() []kgo.Opt {
	pem, err := os.ReadFile(login.CA)
	check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	settings := &tls.Config{RootCAs: pool, ServerName: "localhost"}
	if login.Certificate != "" {
		certificate, err := tls.LoadX509KeyPair(login.Certificate, login.Certificate)
		check(err)
		settings.Certificates = []tls.Certificate{certificate}
	}
	options := []kgo.Opt{kgo.SeedBrokers(login.Bootstrap), kgo.DialTLSConfig(settings)}
	mechanisms := map[string]sasl.Mechanism{
		"PLAIN":         plain.Auth{User: login.User, Pass: login.Password}.AsMechanism(),
		"SCRAM-SHA-256": scram.Auth{User: login.User, Pass: login.Password}.AsSha256Mechanism(),
		"SCRAM-SHA-512": scram.Auth{User: login.User, Pass: login.Password}.AsSha512Mechanism(),
		"OAUTHBEARER":   oauth.Auth{Token: login.Token}.AsMechanism(),
	}
	if login.Mechanism != "" {
		options = append(options, kgo.SASL(mechanisms[login.Mechanism]))
	}
	return options
}

func main() {
	var login Login
	check(json.Unmarshal([]byte(os.Args[1]), &login))
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	send := func(client *kgo.Client, kind string) {
		for i := 0; i < 5; i++ {
			record := &kgo.Record{Topic: login.Name, Value: []byte(fmt.Sprintf("%s-%d", kind, i))}
			check(client.ProduceSync(ctx, record).FirstErr())
		}
	}

	client, err := kgo.NewClient(login.options()...)
	check(err)
	send(client, "plain")
	client.Close()

	client, err = kgo.NewClient(append(login.options(), kgo.TransactionalID(login.Name))...)
	check(err)
	for _, kind := range []string{"committed", "aborted"} {
		check(client.BeginTransaction())
		send(client, kind)
		check(client.EndTransaction(ctx, kgo.TransactionEndTry(kind == "committed")))
	}
	client.Close()

	client, err = kgo.NewClient(append(login.options(), kgo.ConsumerGroup(login.Name), kgo.ConsumeTopics(login.Name),
		kgo.DisableAutoCommit(), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))...)
	check(err)
	defer client.Close()
	for read := 0; read < 10; {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		read += fetches.NumRecords()
	}
	check(client.CommitUncommittedOffsets(ctx))
	fmt.Println("OK")
}
