package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/hcloudsim/robotsim"
)

const help = `hcloud-sim serves a simulated Hetzner Cloud project: servers, networks, load
balancers and actions that behave like the real ones, with their limits and
locks. All state is in memory and lost when it stops.

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

With --robot-listen it also serves the Robot web service of dedicated servers,
with the servers, vSwitches and failover addresses below robot in the seed.

The admin endpoints, without a token, list requests and inject faults:

  curl http://127.0.0.1:8471/_sim/requests
  curl -d '{"match": "POST /servers", "times": 2, "code": "unavailable"}' \
    http://127.0.0.1:8471/_sim/faults
  curl http://127.0.0.1:8471/_sim/state > state.json
  curl -X PUT -d @state.json http://127.0.0.1:8471/_sim/state

Available Commands:
  measure  Measure undocumented behavior of a real cloud

Flags:
`

type config struct {
	listen, adminListen string
	options             hcloudsim.Options
	robot               robotConfig
	seed                seedFile
	state               []byte // snapshot to start from; empty: start empty
	profile             string // file name; empty: no profile
	measured            profile.Profile
}

// texts are flags that are not parsed yet.
type texts struct {
	token, tokenFile, seed, state, busy string
	owned                               []string
}

// parseFlags parses the flags twice: the first time to find the profile with the defaults.
func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	flags, _ := c.flags(out)
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	var errs []error
	var defaults config
	if c.profile != "" {
		var err error
		if defaults, err = profiled(c.profile); err != nil {
			errs = append(errs, fmt.Errorf("--profile=%s: %w", c.profile, err))
		}
	}
	c = defaults
	flags, given := c.flags(out)
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	c.outrank(flags.Changed)

	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("argument %q: there are only flags, see --help", flags.Arg(0)))
	}
	for _, limit := range c.limits() {
		errs = append(errs, checkLimit(limit.flag, *limit.value))
	}
	for kind, quota := range c.options.Quotas {
		if !slices.Contains(hcloudsim.Kinds(), kind) {
			errs = append(errs, fmt.Errorf("--quota=%s: must be one of %v", kind, hcloudsim.Kinds()))
		}
		errs = append(errs, checkLimit("quota="+kind, quota))
	}
	errs = append(errs, c.setOwned(given.owned), c.setBusy(given.busy),
		c.setToken(given.token, given.tokenFile), c.loadSeed(given.seed),
		c.loadState(given.state, given.seed), c.robot.check())
	return c, errors.Join(errs...)
}

func profiled(file string) (config, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return config{}, err
	}
	measured, err := profile.Read(bytes.NewReader(content))
	if err != nil {
		return config{}, err
	}
	c := config{options: hcloudsim.Options{}.With(measured.Cloud), measured: measured}
	c.robot.options = robotsim.Options{}.With(measured.Robot)
	return c, nil
}

// outrank removes measured values that a flag of another name overrides.
func (c *config) outrank(changed func(flag string) bool) {
	if changed("action-time") || changed("action-jitter") {
		c.options.ActionTimes = nil
	}
	if changed("robot-vswitch-time") {
		c.robot.options.VSwitchTimes = nil
	}
	if changed("latency") || c.profile == "" {
		c.robot.options.Latency = c.options.Latency
	}
}

// flags returns all flags, with c as defaults.
func (c *config) flags(out io.Writer) (*pflag.FlagSet, *texts) {
	var t texts
	o := &c.options
	f := pflag.NewFlagSet("hcloud-sim", pflag.ContinueOnError)
	f.SortFlags = false
	f.Usage = func() { fmt.Fprint(out, help, f.FlagUsages()) }
	option := func(value *bool, name, usage string) { f.BoolVar(value, name, *value, usage) }
	f.StringVar(&c.listen, "listen", "127.0.0.1:8470", "address of the API, which is below /v1")
	f.StringVar(&c.adminListen, "admin-listen", "127.0.0.1:8471",
		"address of the admin endpoints, which are below /_sim; empty: none")
	f.StringVar(&t.token, "token", "", "the only bearer token that is accepted; empty: any")
	f.StringVar(&t.tokenFile, "token-file", "", "file with the token")
	f.StringVar(&t.seed, "seed", "", "YAML file with the resources that exist from the start")
	f.StringVar(&t.state, "state", "",
		"JSON file with a snapshot to start from, see /_sim/state; instead of --seed")
	f.StringVar(&c.profile, "profile", c.profile, "file of hcloud-sim measure: behave as the cloud "+
		"that it measured; a flag takes precedence over the file")
	f.DurationVar(&o.ActionTime, "action-time", 0, "how long an action runs")
	f.DurationVar(&o.ActionJitter, "action-jitter", 0, "up to this much is added to it")
	option(&o.EffectsAtOnce, "effects-at-once",
		"show the effect of an action from its start, not from its end")
	f.DurationVar(&o.Latency, "latency", o.Latency, "delay of every request")
	f.DurationVar(&o.HealthyAfter, "healthy-after", 0,
		"how long a load balancer's target is unknown before it is healthy")
	option(&o.ProxyHeaderInChecks, "proxy-header-in-checks",
		"health checks of services with the PROXY protocol begin with its header")
	option(&o.ServeUnjudged, "serve-unjudged",
		"targets of unknown health get connections, for tests that follow the data plane")
	f.StringVar(&t.busy, "busy-code", codeOf(o.Busy),
		"error of a change while another runs on the same resource: conflict or locked")
	option(&o.OneTargetPerServer, "one-target-per-server",
		"refuse a second target of a server at another address of it")
	f.TextVar(&o.IPv6Source, "ipv6-source", o.IPv6Source,
		"address from which load balancers connect to IPv6 addresses; empty: each from its own")
	option(&o.RefuseReassign, "refuse-reassign",
		"refuse to assign a floating IP that a server has, before it is unassigned")
	f.StringSliceVar(&t.owned, "owned-ip", nil,
		"address of a dedicated server, which may be a load balancer's target; may be given again")
	for _, limit := range c.limits() {
		f.IntVar(limit.value, limit.flag, cmp.Or(*limit.value, limit.otherwise),
			limit.of+"; -1: no limit")
	}
	f.StringToIntVar(&o.Quotas, "quota", nil,
		"resources of a kind in the project, like server=10 or ssh_key=5; may be given again")
	c.robot.flags(f)
	return f, &t
}

func codeOf(b hcloudsim.Busy) string {
	if b == hcloudsim.BusyLocked {
		return profile.Locked
	}
	return profile.Conflict
}

type limit struct {
	flag, of  string
	value     *int
	otherwise int
}

func (c *config) limits() []limit {
	o := &c.options
	return []limit{
		{"rate-limit", "requests per hour", &o.RateLimit, 3600},
		{"route-limit", "routes per network", &o.RouteLimit, 100},
		{"subnet-limit", "subnets per network", &o.SubnetLimit, 50},
		{"attachment-limit", "servers and load balancers per network", &o.AttachmentLimit, 100},
		{"server-network-limit", "networks per server", &o.ServerNetworkLimit, 3},
	}
}

func (c *config) setOwned(texts []string) error {
	for _, text := range texts {
		ip, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("--owned-ip=%s: is no IP address", text)
		}
		c.options.OwnedIPs = append(c.options.OwnedIPs, ip)
	}
	return nil
}

func checkLimit(flag string, limit int) error {
	if limit < 1 && limit != hcloudsim.Unlimited {
		return fmt.Errorf("--%s=%d: must be at least 1, or -1 for no limit", flag, limit)
	}
	return nil
}

func (c *config) setBusy(code string) error {
	switch code {
	case profile.Conflict:
		c.options.Busy = hcloudsim.BusyConflict
	case profile.Locked:
		c.options.Busy = hcloudsim.BusyLocked
	default:
		return fmt.Errorf("--busy-code=%s: must be conflict or locked", code)
	}
	return nil
}

func (c *config) setToken(token, file string) (err error) {
	c.options.Token, err = secretOf("token", token, file)
	return err
}

// secretOf returns the value of a flag, or the content of the file that the flag with the suffix
// -file names.
func secretOf(flag, value, file string) (string, error) {
	if file == "" {
		return value, nil
	}
	if value != "" {
		return "", fmt.Errorf("--%s and --%[1]s-file: give only one of them", flag)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--%s-file: %w", flag, err)
	}
	if value = strings.TrimSpace(string(content)); value == "" {
		return "", fmt.Errorf("--%s-file=%s: the file has no %[1]s in it", flag, file)
	}
	return value, nil
}

func (c *config) loadState(file, seed string) (err error) {
	if file != "" && seed != "" {
		return errors.New("--state and --seed: give only one of them")
	}
	if file != "" {
		if c.state, err = os.ReadFile(file); err != nil {
			return fmt.Errorf("--state: %w", err)
		}
	}
	return nil
}

func (c *config) loadSeed(file string) error {
	if file == "" {
		return nil
	}
	content, err := os.ReadFile(file)
	if err == nil {
		c.seed, err = parseSeed(content)
	}
	if err != nil {
		return fmt.Errorf("--seed=%s: %w", file, err)
	}
	return nil
}

// origin returns log attributes with the origin of the profile.
func (c config) origin() []any {
	fields, p := []any{"profile", c.profile}, c.measured
	if !p.Measured.IsZero() {
		fields = append(fields, "measured", p.Measured)
	}
	for _, about := range []struct{ key, value string }{
		{"endpoint", p.Endpoint}, {"location", p.Location}, {"with", p.With},
	} {
		if about.value != "" {
			fields = append(fields, about.key, about.value)
		}
	}
	return fields
}
