import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

export default async function setup(project) {
  const proxy = spawn('lockproxy', ['--attached', 'yes', '--listen', '127.0.0.1:0', '--log-level', 'error'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const [address] = await once(createInterface({ input: proxy.stdout }), 'line');
  project.provide('lockproxy', `redis://${address}`);
  return async () => {
    proxy.stdin.end();
    await once(proxy, 'exit');
  };
}
