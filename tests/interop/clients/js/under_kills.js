// kafkajs while broker or program are killed; the lines on stdout are those of tests/support/foreign_workload.py.
const fs = require('node:fs')
const path = require('node:path')
const { Kafka, Partitioners, logLevel } = require('kafkajs')

const [bootstrap, name, partitionCount, incarnation, directory] = process.argv.slice(2)
const partitions = Number(partitionCount)
// Enough tries, at short intervals, to outlive a broker's restart: kafkajs gives up after five by default.
const retry = { retries: 30, initialRetryTime: 100, maxRetryTime: 1000 }
const kafka = new Kafka({ clientId: 'js', brokers: [bootstrap], logLevel: logLevel.NOTHING, retry, connectionTimeout: 3000 })

const say = (...words) => fs.writeSync(1, words.join(' ').replaceAll('\n', ' ') + '\n')
const asked = (file) => fs.existsSync(path.join(directory, file))
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms))

// kafkajs asks for its producer id with the first transaction: an empty one ends at once what an earlier producer left
// open. Only then are committed offsets decided, which the broker waits for, and readers get on.
async function connected (transactionalId) {
  for (;;) {
    const producer = kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner, idempotent: true, maxInFlightRequests: 1, retry,
      ...(transactionalId && { transactionalId, transactionTimeout: 60_000 })
    })
    try {
      await producer.connect()
      if (transactionalId) await (await producer.transaction()).abort()
      return producer
    } catch (error) {
      say('R', 'connection', error)
      await producer.disconnect().catch(() => {})
      await sleep(100)
    }
  }
}

async function plain () {
  let producer = await connected()
  for (let n = 0; !asked('writers.stop'); n++) {
    const messages = Array.from({ length: partitions }, (_, partition) => ({ partition, value: `${incarnation}-${partition}-${n}` }))
    try {
      for (const { partition, baseOffset } of await producer.send({ topic: `${name}-plain`, acks: -1, messages })) {
        say('A', partition, baseOffset, messages[partition].value)
      }
    } catch (error) {
      for (const { value } of messages) say('N', value, error)
      say('R', 'plain', error)
      await producer.disconnect().catch(() => {})
      producer = await connected()
    }
    await sleep(3)
  }
  await producer.disconnect()
}

async function transactions (writer) {
  const id = `${name}-w${writer}`
  let producer = await connected(id)
  for (let number = 0; !asked('writers.stop'); number++) {
    const label = `${id}/${incarnation}.${number}`
    const count = 1 + Math.floor(Math.random() * 5)
    let transaction
    let ended = false
    say('T', label, count)
    try {
      transaction = await producer.transaction()
      for (let index = 0; index < count; index++) {
        const partition = (number + index) % partitions
        await transaction.send({ topic: `${name}-txn`, messages: [{ partition, value: `${label}/${index}` }] })
      }
      if (Math.random() < 0.2) {
        ended = true
        await transaction.abort()
        say('X', label)
      } else {
        ended = true
        say('K', label)
        await transaction.commit()
        say('C', label)
      }
    } catch (error) {
      if (transaction && !ended) {
        try {
          await transaction.abort()
          say('X', label)
          say('B', 'writer', error)
          continue
        } catch { }
      }
      say('U', label)
      say('R', 'writer', error)
      await producer.disconnect().catch(() => {})
      producer = await connected(id)
    }
  }
  await producer.disconnect()
}

// One producer and one consumer until something fails; both then begin again at the committed offsets.
async function life () {
  const producer = await connected(`${name}-copy`)
  const consumer = kafka.consumer({ groupId: `${name}-copy`, sessionTimeout: 6000, heartbeatInterval: 1000, maxWaitTimeInMs: 200, retry })
  let failure
  try {
    await consumer.connect()
    consumer.on(consumer.events.CRASH, ({ payload }) => { if (!payload.restart) failure = payload.error })
    await consumer.subscribe({ topic: `${name}-plain`, fromBeginning: true })
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset }) => {
        if (failure || batch.messages.length === 0) return
        try {
          const transaction = await producer.transaction()
          const messages = batch.messages.map(({ value }) => ({ partition: batch.partition, value }))
          await transaction.send({ topic: `${name}-copy`, messages })
          const offset = (BigInt(batch.lastOffset()) + 1n).toString()
          const topics = [{ topic: batch.topic, partitions: [{ partition: batch.partition, offset }] }]
          await transaction.sendOffsets({ consumerGroupId: `${name}-copy`, topics })
          await transaction.commit()
          resolveOffset(batch.lastOffset())
        } catch (error) {
          failure = error
        }
      }
    })
    while (!failure && !asked('all.stop')) await sleep(50)
  } finally {
    await consumer.disconnect().catch(() => {})
    await producer.disconnect().catch(() => {})
  }
  if (failure) throw failure
}

async function transform () {
  while (!asked('all.stop')) {
    await life().catch((error) => say('R', 'copy', error))
  }
}

async function main () {
  const copier = transform()
  await Promise.all([plain(), transactions(0), transactions(1)])
  say('D')
  await copier
  say('E')
  process.exit(0)
}

main().catch((error) => { say('F', 'main', error.stack); process.exit(1) })
