package clients

import "github.com/lockproxy/lockproxy/integration/harness"

var clients = []client{
	{
		name: "redis-py", tools: []string{"python3"}, beside: []string{"../../clients/python/lockproxy"}, push: true, cluster: true,
		fetch: [][]string{
			{"python3", "-m", "venv", "venv"},
			{"venv/bin/pip", "install", "-q", "-r", "requirements.txt"},
		},
		run:  []string{"venv/bin/python", "main.py"},
		lost: []string{"venv/bin/python", "lost.py"},
	},
	{
		name: "node-redis", tools: []string{"node", "npm"}, caching: true, cluster: true,
		fetch: [][]string{{"npm", "ci", "--no-audit", "--no-fund"}},
		run:   []string{"node", "main.mjs"},
		lost:  []string{"node", "lost.mjs"},
	},
	{
		name: "ioredis", tools: []string{"node", "npm"}, cluster: true,
		fetch: [][]string{{"npm", "ci", "--no-audit", "--no-fund"}},
		run:   []string{"node", "main.mjs"},
		lost:  []string{"node", "lost.mjs"},
	},
	{
		name: "redis-rs", tools: []string{"cargo"}, push: true,
		fetch: [][]string{{"cargo", "fetch", "--locked"}},
		build: [][]string{{"cargo", "build", "--quiet", "--locked", "--offline"}},
		run:   []string{"target/debug/lockproxy-interop-redis-rs"},
		lost:  []string{"target/debug/lost"},
	},
	{
		name: "jedis", tools: []string{"java", "mvn"}, push: true, cluster: true,
		fetch: mavenFetch, build: mavenBuild, run: mavenRun, lost: mavenLost,
	},
	{
		name: "lettuce", tools: []string{"java", "mvn"}, caching: true, push: true, cluster: true,
		fetch: mavenFetch, build: mavenBuild, run: mavenRun, lost: mavenLost,
	},
	{
		name: "hiredis", tools: []string{"make", "cc", "python3"}, push: true,
		fetch: [][]string{{"make", "fetch"}},
		build: [][]string{{"make"}},
		run:   []string{"./main"},
		lost:  []string{"./lost"},
	},
	{
		name: "redis-client", tools: []string{"ruby", "gem"},
		env:     []string{"GEM_HOME=gems", "RUBYGEMS_GEMDEPS=Gemfile"},
		present: []string{"ruby", "-rredis-client", "-e", ""},
		fetch:   [][]string{{"gem", "install", "--no-document", "--file", "Gemfile"}},
		run:     []string{"ruby", "main.rb"},
		lost:    []string{"ruby", "lost.rb"},
	},
	{
		name: "phpredis", tools: []string{"php"},
		present: []string{"php", "-r", "exit(extension_loaded('redis') ? 0 : 1);"},
		fetch:   [][]string{{"apt-get", "install", "-y", "--no-install-recommends", "php-redis"}},
		run:     []string{"php", "main.php"},
		lost:    []string{"php", "lost.php"},
	},
	{
		name: "go-redis", tools: []string{"go"}, push: true, cluster: true,
		fetch: [][]string{{"go", "mod", "download"}},
		build: [][]string{{"go", "build", "-o", "main", "."}},
		run:   []string{"./main"},
		lost:  []string{"./main", "lost"},
	},
}

var mavenFetch, mavenBuild, mavenRun = harness.Maven()

var mavenLost = append(mavenRun[:len(mavenRun)-1:len(mavenRun)-1], "Lost")
