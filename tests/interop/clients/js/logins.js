// kafkajs over TLS: an idempotent producer, transactions, and a group of one. The argument is the login as JSON.
const fs = require('node:fs')
const { Kafka, logLevel } = require('kafkajs')

const deadline = setTimeout(() => { console.error('FAIL: out of time'); process.exit(1) }, 90_000)

async function main() {
  const login = JSON.parse(process.argv[2])
  const ssl = { ca: [fs.readFileSync(login.ca)] }
  if (login.certificate) ssl.cert = ssl.key = fs.readFileSync(login.certificate)
  const sasl = login.mechanism
    ? { mechanism: login.mechanism.toLowerCase(), username: login.user, password: login.password,
        oauthBearerProvider: async () => ({ value: login.token }) }
    : undefined
  const kafka = new Kafka({ clientId: 'js', brokers: [login.bootstrap], ssl, sasl, logLevel: logLevel.NOTHING })
  const topic = login.name
  const messages = (kind) => Array.from({ length: 5 }, (_, i) => ({ value: `${kind}-${i}` }))

  const plain = kafka.producer({ idempotent: true })
  await plain.connect()
  await plain.send({ topic, messages: messages('plain') })
  await plain.disconnect()

  const producer = kafka.producer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  for (const kind of ['committed', 'aborted']) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: messages(kind) })
    await (kind === 'committed' ? transaction.commit() : transaction.abort())
  }
  await producer.disconnect()

  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let read = 0
  const last = await new Promise((resolve) => {
    consumer.run({ autoCommit: false, eachMessage: async ({ message }) => { if (++read === 10) resolve(message.offset) } })
  })
  await consumer.commitOffsets([{ topic, partition: 0, offset: `${Number(last) + 1}` }])
  await consumer.disconnect()
  clearTimeout(deadline)
  console.log('OK')
}

main().catch((error) => { console.error('FAIL', error); process.exit(1) })
