module github.com/lockproxy/lockproxy

go 1.26.8

// staticcheck, pinned
tool honnef.co/go/tools/cmd/staticcheck

require (
	// tests: delays on the wire
	github.com/Shopify/toxiproxy/v2 v2.5.0
	// the embedded store, a Redis in process; the Redis of tests in a bubble
	github.com/alicebob/miniredis/v2 v2.40.0
	// tests: searches histories for an order that explains every reply, and draws them
	github.com/anishathalye/porcupine v1.3.1
	// what systemd is told, and the sockets that it opened
	github.com/coreos/go-systemd/v22 v22.7.0
	// tests: an ordinary client, past us and through us
	github.com/gomodule/redigo v1.9.3
	// the proxy's half of an owner, in Redisson's format
	github.com/google/uuid v1.6.0
	// every bounded cache: spare logins, finished unlocks, permissions
	github.com/hashicorp/golang-lru/v2 v2.0.7
	// reads the PROXY protocol's header, which may be malformed in many ways; 0.16 needs Go 1.26.9
	github.com/pires/go-proxyproto v0.15.0
	// the /metrics endpoint
	github.com/prometheus/client_golang v1.25.0
	// Prometheus' way of naming figures
	github.com/prometheus/otlptranslator v1.0.0
	// tests: an ordinary client, past us and through us
	github.com/redis/go-redis/v9 v9.23.0
	// the control plane: scripts, pub/sub, topology, behind our own check of what it reads
	github.com/redis/rueidis v1.0.79
	// tests: the logger that toxiproxy wants, silenced
	github.com/rs/zerolog v1.35.1
	// serves RESP to clients, behind our own guard
	github.com/tidwall/redcon v1.6.4
	// what miniredis runs Lua with; the simulation runs scripts with it by itself
	github.com/yuin/gopher-lua v1.1.2
	// the API of figures, of which telemetry is made
	go.opentelemetry.io/otel v1.47.0
	// makes OTLP's messages of spans; internal/otlp sends them, and those of figures
	go.opentelemetry.io/otel/exporters/otlp/otlptrace v1.47.0
	// figures as Prometheus names them
	go.opentelemetry.io/otel/exporters/prometheus v0.69.0
	// samples and batches spans as the standard OTEL_ variables say
	go.opentelemetry.io/otel/sdk v1.47.0
	// collects figures, for both exporters
	go.opentelemetry.io/otel/sdk/metric v1.47.0
	// the API of spans
	go.opentelemetry.io/otel/trace v1.47.0
	// the types of OTLP's messages
	go.opentelemetry.io/proto/otlp v1.11.1
	// tests: finds goroutines that nobody waited for
	go.uber.org/goleak v1.3.0
	// the settings file, with line numbers in its errors
	go.yaml.in/yaml/v3 v3.0.6
	// groups of goroutines that are waited for together
	golang.org/x/sync v0.25.0
	// TCP_USER_TIMEOUT and TCP_INFO, which the standard library does not name
	golang.org/x/sys v0.50.0
	// how large the terminal of lockproxy top is
	golang.org/x/term v0.48.0
	// how many columns of a terminal a letter takes
	golang.org/x/text v0.44.0
	// how fast an address may guess passwords
	golang.org/x/time v0.16.0
	// the bytes of OTLP's messages
	google.golang.org/protobuf v1.36.12
)

require (
	github.com/BurntSushi/toml v1.6.0 // indirect
	github.com/beorn7/perks v1.0.1 // indirect
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	github.com/go-logr/logr v1.4.4 // indirect
	github.com/go-logr/stdr v1.2.2 // indirect
	github.com/gorilla/mux v1.8.1 // indirect
	github.com/mattn/go-colorable v0.1.16 // indirect
	github.com/mattn/go-isatty v0.0.24 // indirect
	github.com/munnerz/goautoneg v0.0.0-20191010083416-a7dc8b61c822 // indirect
	github.com/prometheus/client_model v0.6.3 // indirect
	github.com/prometheus/common v0.72.0 // indirect
	github.com/prometheus/procfs v0.23.0 // indirect
	github.com/rs/xid v1.6.0 // indirect
	github.com/tidwall/btree v1.8.2 // indirect
	github.com/tidwall/match v1.2.0 // indirect
	go.opentelemetry.io/auto/sdk v1.2.1 // indirect
	go.opentelemetry.io/otel/log v1.47.0 // indirect
	go.opentelemetry.io/otel/metric v1.47.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	golang.org/x/exp/typeparams v0.0.0-20261009195045-ca0d7ba23607 // indirect
	golang.org/x/mod v0.43.0 // indirect
	golang.org/x/net v0.62.0 // indirect
	golang.org/x/tools v0.52.0 // indirect
	gopkg.in/tomb.v1 v1.0.0-20141024135613-dd632973f1e7 // indirect
	honnef.co/go/tools v0.8.2 // indirect
)
