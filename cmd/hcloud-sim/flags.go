package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"github.com/underlay-ccm/underlay/hcloudsim"
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

With --robot-listen it also serves the Robot web service of dedicated servers,
whose servers, vSwitches and failover addresses stand below robot in the seed.

Behind the API, without a token, see what was asked and let things go wrong:

  curl http://127.0.0.1:8471/_sim/requests
  curl -d '{"match": "POST /servers", "times": 2, "code": "unavailable"}' \
    http://127.0.0.1:8471/_sim/faults
  curl http://127.0.0.1:8471/_sim/state > state.json
  curl -X PUT -d @state.json http://127.0.0.1:8471/_sim/state

Flags:
`

// config is what the flags say.
type config struct {
	listen, adminListen string
	options             hcloudsim.Options
	robot               robotConfig
	seed                seedFile
	state               []byte // a snapshot to start from; empty: none
	// countMembers has the servers in vSwitches count as attached.
	countMembers bool
}

func parseFlags(args []string, out io.Writer) (config, error) {
	var c config
	var token, tokenFile, seed, state, busy string
	var owned []string
	flags := pflag.NewFlagSet("hcloud-sim", pflag.ContinueOnError)
	flags.SortFlags = false
	flags.Usage = func() { fmt.Fprint(out, help, flags.FlagUsages()) }
	flags.StringVar(&c.listen, "listen", "127.0.0.1:8470", "address of the API, which is below /v1")
	flags.StringVar(&c.adminListen, "admin-listen", "127.0.0.1:8471", "address of the admin endpoints, which are below /_sim; empty: none")
	flags.StringVar(&token, "token", "", "the only bearer token that is accepted; empty: any")
	flags.StringVar(&tokenFile, "token-file", "", "file with the token")
	flags.StringVar(&seed, "seed", "", "YAML file with what exists from the start")
	flags.StringVar(&state, "state", "", "JSON file with a snapshot to start from, see /_sim/state; instead of --seed")
	flags.DurationVar(&c.options.ActionTime, "action-time", 0, "how long an action runs")
	flags.DurationVar(&c.options.ActionJitter, "action-jitter", 0, "up to this much is added to it")
	flags.BoolVar(&c.options.EffectsAtOnce, "effects-at-once", false, "show what an action does from its start, not from its end")
	flags.DurationVar(&c.options.Latency, "latency", 0, "delay of every request")
	flags.DurationVar(&c.options.HealthyAfter, "healthy-after", 0, "how long a load balancer's target is unknown before it is healthy")
	flags.BoolVar(&c.options.ProxyHeaderInChecks, "proxy-header-in-checks", false, "health checks of services with the PROXY protocol begin with its header")
	flags.StringVar(&busy, "busy-code", "conflict", "error of a change while another runs on the same resource: conflict or locked")
	flags.BoolVar(&c.options.RefuseIPv6Targets, "refuse-ipv6-targets", false, "take only IPv4 addresses of dedicated servers as targets of load balancers")
	flags.BoolVar(&c.options.OneTargetPerServer, "one-target-per-server", false, "refuse a second target of a server at another address of it")
	flags.TextVar(&c.options.IPv6Source, "ipv6-source", netip.Addr{}, "address from which load balancers connect to IPv6 addresses; empty: each from its own")
	flags.BoolVar(&c.countMembers, "count-vswitch-members", false, "dedicated servers in a vSwitch count toward --attachment-limit of the network that is coupled with it")
	flags.BoolVar(&c.options.OneVSwitchSubnet, "one-vswitch-subnet", false, "refuse a second subnet of type vswitch in a network")
	flags.BoolVar(&c.options.ZoneIgnoresPrimaryIPs, "zone-ignores-primary-ips", false, "place a load balancer in a network zone without regard to where its primary IPs are")
	flags.BoolVar(&c.options.RefuseReassign, "refuse-reassign", false, "refuse to assign a floating IP that a server has, before it is unassigned")
	flags.StringSliceVar(&owned, "owned-ip", nil, "address of a dedicated server, which may be a load balancer's target; may be given again")
	for _, limit := range c.limits() {
		flags.IntVar(limit.value, limit.flag, limit.otherwise, limit.of+"; -1: no limit")
	}
	c.robot.flags(flags)
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	c.robot.options.Latency = c.options.Latency

	var errs []error
	if flags.NArg() > 0 {
		errs = append(errs, fmt.Errorf("argument %q: there are only flags, see --help", flags.Arg(0)))
	}
	for _, limit := range c.limits() {
		errs = append(errs, checkLimit(limit.flag, *limit.value))
	}
	errs = append(errs, c.setOwned(owned), c.setBusy(busy), c.setToken(token, tokenFile), c.loadSeed(seed), c.loadState(state, seed))
	errs = append(errs, c.robot.check(!c.seed.Robot.empty()))
	return c, errors.Join(errs...)
}

// limit is a flag for one of the options' limits.
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
		{"server-limit", "servers", &o.ServerLimit, hcloudsim.Unlimited},
		{"network-limit", "networks", &o.NetworkLimit, hcloudsim.Unlimited},
		{"load-balancer-limit", "load balancers", &o.LoadBalancerLimit, hcloudsim.Unlimited},
		{"certificate-limit", "certificates", &o.CertificateLimit, hcloudsim.Unlimited},
		{"ssh-key-limit", "SSH keys", &o.SSHKeyLimit, hcloudsim.Unlimited},
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

func (c *config) loadState(file, seed string) error {
	if file == "" {
		return nil
	}
	if seed != "" {
		return errors.New("--state and --seed: give only one of them")
	}
	var err error
	if c.state, err = os.ReadFile(file); err != nil {
		return fmt.Errorf("--state: %w", err)
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
