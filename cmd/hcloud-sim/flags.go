package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"github.com/underlay-ccm/underlay/internal/hcloudsim"
)

const help = `hcloud-sim serves a simulated Hetzner Cloud project: servers, networks, load
balancers and actions that behave like the real ones, with their limits and
locks. Everything is in memory and gone when it stops.

Start it with a network and two servers:

  cat > seed.yaml <<'EOF'
  networks:
    - name: cluster
      ip_range: 10.0.0.0/8
      subnets: [{ip_range: 10.0.0.0/16}]
  servers:
    - {name: node-1, network: cluster}
    - {name: node-2, network: cluster, labels: {role: worker}}
  EOF
  hcloud-sim --seed seed.yaml --token secret --action-time 300ms

Then use it as the real one:

  curl -H 'Authorization: Bearer secret' http://127.0.0.1:8470/v1/servers

In Go: hcloud.NewClient(hcloud.WithToken("secret"),
hcloud.WithEndpoint("http://127.0.0.1:8470/v1")).

Behind the API, without a token, see what was asked and let things go wrong:

  curl http://127.0.0.1:8471/_sim/requests
  curl -d '{"match": "POST /servers", "times": 2, "code": "unavailable"}' \
    http://127.0.0.1:8471/_sim/faults

Flags:
`

// config is what the flags say.
type config struct {
	listen, adminListen string
	options             hcloudsim.Options
	seed                seedFile
}

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	var token, tokenFile, seed, busy string
	flags := pflag.NewFlagSet("hcloud-sim", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() { fmt.Fprint(out, help, flags.FlagUsages()) }
	flags.StringVar(&c.listen, "listen", "127.0.0.1:8470", "address of the API, which is below /v1")
	flags.StringVar(&c.adminListen, "admin-listen", "127.0.0.1:8471", "address of the admin endpoints, which are below /_sim; empty: none")
	flags.StringVar(&token, "token", "", "the only bearer token that is accepted; empty: any")
	flags.StringVar(&tokenFile, "token-file", "", "file with the token")
	flags.StringVar(&seed, "seed", "", "YAML file with what exists from the start")
	flags.DurationVar(&c.options.ActionTime, "action-time", 0, "how long an action runs")
	flags.DurationVar(&c.options.ActionJitter, "action-jitter", 0, "up to this much is added to it")
	flags.BoolVar(&c.options.EffectsAtOnce, "effects-at-once", false, "show what an action does from its start, not from its end")
	flags.DurationVar(&c.options.Latency, "latency", 0, "delay of every request")
	flags.DurationVar(&c.options.HealthyAfter, "healthy-after", 0, "how long a load balancer's target is unknown before it is healthy")
	flags.StringVar(&busy, "busy-code", "conflict", "error of a change while another runs on the same resource: conflict or locked")
	flags.IntVar(&c.options.RateLimit, "rate-limit", 3600, "requests per hour; -1: no limit")
	flags.IntVar(&c.options.RouteLimit, "route-limit", 100, "routes per network; -1: no limit")
	flags.IntVar(&c.options.AttachmentLimit, "attachment-limit", 100, "servers and load balancers per network; -1: no limit")
	if err := flags.Parse(args); err != nil {
		return c, err
	}

	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("argument %q: there are only flags, see --help", flags.Arg(0)))
	}
	errs = append(errs,
		checkLimit("rate-limit", c.options.RateLimit),
		checkLimit("route-limit", c.options.RouteLimit),
		checkLimit("attachment-limit", c.options.AttachmentLimit),
		c.setBusy(busy), c.setToken(token, tokenFile), c.loadSeed(seed),
	)
	return c, errors.Join(errs...)
}

func checkLimit(flag string, limit int) error {
	if limit < 1 && limit != hcloudsim.Unlimited {
		return fmt.Errorf("--%s=%d: must be at least 1, or -1 for no limit", flag, limit)
	}
	return nil
}

func (c *config) setBusy(code string) error {
	switch code {
	case "conflict":
		c.options.Busy = hcloudsim.BusyConflict
	case "locked":
		c.options.Busy = hcloudsim.BusyLocked
	default:
		return fmt.Errorf("--busy-code=%s: must be conflict or locked", code)
	}
	return nil
}

func (c *config) setToken(token, file string) error {
	if file == "" {
		c.options.Token = token
		return nil
	}
	if token != "" {
		return errors.New("--token and --token-file: give only one of them")
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--token-file: %w", err)
	}
	if c.options.Token = strings.TrimSpace(string(content)); c.options.Token == "" {
		return fmt.Errorf("--token-file=%s: the file has no token in it", file)
	}
	return nil
}

func (c *config) loadSeed(file string) error {
	if file == "" {
		return nil
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("--seed: %w", err)
	}
	if c.seed, err = parseSeed(content); err != nil {
		return fmt.Errorf("--seed=%s: %w", file, err)
	}
	return nil
}
