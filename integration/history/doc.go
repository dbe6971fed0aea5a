// Package history runs random workloads against real proxies and a real Redis while both are being hurt, records what every
// client asked and was told, and checks the record: README.md tells what is checked and how to run it longer.
package history
