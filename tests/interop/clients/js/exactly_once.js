// kafkajs: admin, transactions that commit and abort in turn, offsets in a transaction, a group consumer.
const assert = require('node:assert')
const { Kafka, logLevel } = require('kafkajs')

const deadline = setTimeout(() => { console.error('FAIL: out of time'); process.exit(1) }, 90_000)

async function main() {
  const kafka = new Kafka({ clientId: 'js', brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
  const topic = `js-${Date.now()}-${process.pid}`
  const admin = kafka.admin()
  await admin.connect()
  await admin.createTopics({ topics: [{ topic, numPartitions: 2 }] })
  assert.equal((await admin.fetchTopicMetadata({ topics: [topic] })).topics[0].partitions.length, 2)

  const producer = kafka.producer({ transactionalId: topic, maxInFlightRequests: 1, idempotent: true })
  await producer.connect()
  for (let i = 0; i < 40; i++) {
    const transaction = await producer.transaction()
    await transaction.send({ topic, messages: [{ key: `k${i}`, value: `v${i}` }] })
    await transaction.sendOffsets({ consumerGroupId: `${topic}-done`, topics: [{ topic, partitions: [{ partition: 0, offset: `${i}` }] }] })
    await (i % 2 ? transaction.abort() : transaction.commit())
  }
  const [committed] = await admin.fetchOffsets({ groupId: `${topic}-done`, topics: [topic] })
  assert.equal(committed.partitions.find(({ partition }) => partition === 0).offset, '38')

  const consumer = kafka.consumer({ groupId: topic })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const read = []
  const all = new Promise((resolve) => {
    consumer.run({ eachMessage: async ({ message }) => { if (read.push(message.value.toString()) === 20) resolve() } })
  })
  await all
  await consumer.disconnect()
  assert.deepEqual(read.map((value) => Number(value.slice(1))).sort((a, b) => a - b), Array.from({ length: 20 }, (_, i) => 2 * i))

  assert.ok((await admin.listGroups()).groups.some(({ groupId }) => groupId === topic))
  await producer.disconnect()
  await admin.deleteTopics({ topics: [topic] })
  await admin.disconnect()
  clearTimeout(deadline)
  console.log('OK')
}

main().catch((error) => { console.error('FAIL', error); process.exit(1) })
