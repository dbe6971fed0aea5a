// BullMQ's queues through lockproxy: each step prints "ok" and its name.
import assert from 'node:assert';
import { FlowProducer, Queue, QueueEvents, Worker } from 'bullmq';

const [host, port] = process.env.LOCKPROXY_ADDR.split(':');
const connection = { host, port: Number(port), maxRetriesPerRequest: null };
const patience = 30_000;

const queue = new Queue('q', { connection });
const events = new QueueEvents('q', { connection });
let failures = 0;
const worker = new Worker('q', async (job) => {
  if (job.name === 'fails once' && ++failures < 2) throw new Error('once');
  if (job.name === 'tells') {
    await job.updateProgress(50);
    await job.log('half');
  }
  return (job.data.n ?? 0) + 1;
}, { connection, concurrency: 2 });
for (const part of [queue, events, worker]) part.on('error', (error) => { throw error; });
await Promise.all([queue, events, worker].map((part) => part.waitUntilReady()));

const result = (job) => job.waitUntilFinished(events, patience);

async function step(name, run) {
  await run();
  console.log(`ok ${name}`);
}

await step('job', async () => assert.equal(await result(await queue.add('a', { n: 1 })), 2));
await step('bulk', async () => {
  const jobs = await queue.addBulk([{ name: 'a', data: { n: 1 } }, { name: 'b', data: { n: 2 } }]);
  assert.deepEqual(await Promise.all(jobs.map(result)), [2, 3]);
});
await step('delay', async () => assert.equal(await result(await queue.add('a', { n: 5 }, { delay: 200 })), 6));
await step('priority', async () => assert.equal(await result(await queue.add('a', { n: 5 }, { priority: 3 })), 6));
await step('retry', async () => {
  assert.equal(await result(await queue.add('fails once', { n: 7 }, { attempts: 3, backoff: 50 })), 8);
  assert.equal(failures, 2);
});
await step('progress', async () => {
  const job = await queue.add('tells', {});
  await result(job);
  assert.deepEqual((await queue.getJobLogs(job.id)).logs, ['half']);
});
await step('once', async () => {
  const jobs = [await queue.add('a', {}, { jobId: 'one' }), await queue.add('a', {}, { jobId: 'one' })];
  assert.deepEqual(jobs.map((job) => job.id), ['one', 'one']);
  await result(jobs[0]);
});
await step('scheduler', async () => {
  assert.equal(await result(await queue.upsertJobScheduler('often', { every: 200 }, { name: 'a', data: { n: 1 } })), 2);
  assert.equal((await queue.getJobSchedulers()).length, 1);
  await queue.removeJobScheduler('often');
});
await step('flow', async () => {
  const flow = new FlowProducer({ connection });
  const child = { name: 'a', queueName: 'q', data: { n: 2 } };
  const { job } = await flow.add({ name: 'a', queueName: 'q', data: { n: 1 }, children: [child] });
  assert.equal(await result(job), 2);
  assert.deepEqual(Object.values(await job.getChildrenValues()), [3]);
  await flow.close();
});
await step('pause', async () => {
  await queue.pause();
  const job = await queue.add('a', { n: 1 });
  assert.equal((await queue.getJobCounts('waiting')).waiting, 1);
  await queue.resume();
  assert.equal(await result(job), 2);
});
await step('end', async () => {
  assert.ok((await queue.clean(0, 100, 'completed')).length >= 8);
  await worker.close();
  await queue.obliterate({ force: true });
  await events.close();
  await queue.close();
});
