package speaker_test

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/addresses/bgp"
	"github.com/underlay-ccm/underlay/test/testenv/complete"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// The fabric: a router with BIRD, two nodes on its segment, and a client behind it.
//
//	client ---- router ====+========+====
//	                       |        |
//	                      node a   node b
const (
	nodeASN   = 64512
	routerASN = 64500
)

var (
	router4  = netip.MustParseAddr("192.0.2.1")
	router6  = netip.MustParseAddr("2001:db8::1")
	service4 = netip.MustParseAddr("203.0.113.10")
	service6 = netip.MustParseAddr("2001:db8:5::10")
)

type fabric struct {
	t              *testing.T
	router, client *netns.Space
	nodes          map[string]*netns.Space
	dir            string
	bird           *process.Process
}

// own returns the addresses of a node on the segment.
func own(node string) (netip.Addr, netip.Addr) {
	host := map[string]int{"a": 11, "b": 12}[node]
	return netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", host)), netip.MustParseAddr(fmt.Sprintf("2001:db8::%d", host))
}

func newFabric(t *testing.T) *fabric {
	t.Helper()
	if _, err := exec.LookPath("bird"); err != nil {
		complete.Skip(t, "bird isn't installed: apt install bird2")
	}
	f := &fabric{
		t: t, router: netns.New(t), client: netns.New(t), nodes: map[string]*netns.Space{},
		dir: t.TempDir(),
	}
	f.router.Run("ip", "link", "add", "segment", "type", "bridge")
	f.router.Run("ip", "link", "set", "segment", "up")
	for name := range map[string]int{"a": 0, "b": 0} {
		n := netns.New(t)
		f.nodes[name] = n
		netns.Link(f.router, "to-"+name, n, "uplink")
		f.router.Run("ip", "link", "set", "to-"+name, "master", "segment")
		v4, v6 := own(name)
		give(n, "uplink", v4, 24)
		give(n, "uplink", v6, 64)
		give(n, "lo", service4, 32)
		give(n, "lo", service6, 128)
		n.Run("ip", "route", "add", "default", "via", router4.String())
		n.Run("ip", "-6", "route", "add", "default", "via", router6.String())
	}
	netns.Link(f.router, "outside", f.client, "uplink")
	give(f.router, "segment", router4, 24)
	give(f.router, "segment", router6, 64)
	give(f.router, "outside", netip.MustParseAddr("198.51.100.1"), 24)
	give(f.router, "outside", netip.MustParseAddr("2001:db8:c::1"), 64)
	give(f.client, "uplink", netip.MustParseAddr("198.51.100.2"), 24)
	give(f.client, "uplink", netip.MustParseAddr("2001:db8:c::2"), 64)
	f.client.Run("ip", "route", "add", "default", "via", "198.51.100.1")
	f.client.Run("ip", "-6", "route", "add", "default", "via", "2001:db8:c::1")
	f.router.Sysctl("net/ipv4/ip_forward", "1")
	f.router.Sysctl("net/ipv6/conf/all/forwarding", "1")
	// The hash includes ports, so that one client's flows go to both nodes.
	f.router.Sysctl("net/ipv4/fib_multipath_hash_policy", "1")
	f.router.Sysctl("net/ipv6/fib_multipath_hash_policy", "1")
	return f
}

func give(n *netns.Space, device string, a netip.Addr, bits int) {
	args := []string{"addr", "add", fmt.Sprintf("%s/%d", a, bits), "dev", device}
	if a.Is6() {
		args = append(args, "nodad")
	}
	n.Run("ip", args...)
}

// session is the BIRD protocol for a node's session in one family.
type session struct {
	node     string
	family   int
	options  string // lines of the protocol
	channels string // lines that replace the family's own channel
}

const birdHead = `router id 192.0.2.1;
log stderr all;
protocol device { scan time 1; }
protocol bfd { interface "segment" { min rx interval 100 ms; min tx interval 100 ms; multiplier 3; }; }
protocol kernel k4 { ipv4 { import none; export all; }; merge paths on; }
protocol kernel k6 { ipv6 { import none; export all; }; merge paths on; }
`

// route starts or restarts BIRD with these sessions.
func (f *fabric) route(sessions ...session) {
	f.t.Helper()
	var text strings.Builder
	text.WriteString(birdHead)
	for _, s := range sessions {
		v4, v6 := own(s.node)
		local, neighbor, channel := router4, v4, "ipv4"
		if s.family == 6 {
			local, neighbor, channel = router6, v6, "ipv6"
		}
		if s.channels == "" {
			s.channels = channel + " { import all; export none; };"
		}
		fmt.Fprintf(&text, "protocol bgp %s%d {\n\tlocal %s as %d;\n\tneighbor %s as %d;\n\tpassive on;\n\terror wait time 1, 2;\n\t%s\n\t%s\n}\n",
			s.node, s.family, local, routerASN, neighbor, nodeASN, s.options, s.channels)
	}
	f.start(text.String())
}

// start starts or restarts BIRD with a configuration.
func (f *fabric) start(configuration string) {
	f.t.Helper()
	config := filepath.Join(f.dir, "bird.conf")
	if err := os.WriteFile(config, []byte(configuration), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if f.bird != nil {
		f.bird.Kill()
	}
	f.bird = f.daemon(f.router, "bird")
	f.until(10*time.Second, "BIRD answers", func() bool {
		_, err := f.router.Try("birdc", "-s", f.control(), "show", "status")
		return err == nil
	})
}

// daemon starts a BIRD in a namespace, with the configuration of its name.
func (f *fabric) daemon(in *netns.Space, name string) *process.Process {
	f.t.Helper()
	file := func(kind string) string { return filepath.Join(f.dir, name+"."+kind) }
	bird, err := process.Start(process.Command{
		Name: name, Path: "nsenter", Dir: f.dir,
		Args: []string{"--net=" + in.Path(), "--", "bird", "-f", "-c", file("conf"), "-s", file("ctl"), "-P", file("pid")},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() {
		bird.Kill()
		if log, err := os.ReadFile(bird.Log); err == nil && f.t.Failed() {
			f.t.Logf("BIRD:\n%s", log)
		}
	})
	return bird
}

func (f *fabric) control() string { return filepath.Join(f.dir, "bird.ctl") }

// learn gives the router this number of routes of another origin.
func (f *fabric) learn(routes int) {
	f.t.Helper()
	var text strings.Builder
	text.WriteString("protocol static many {\n\tipv4;\n")
	for i := range routes {
		fmt.Fprintf(&text, "\troute 10.%d.%d.0/24 blackhole;\n", i/256, i%256)
	}
	text.WriteString("}\n")
	config := filepath.Join(f.dir, "bird.conf")
	before, err := os.ReadFile(config)
	if err == nil {
		err = os.WriteFile(config, append(before, text.String()...), 0o600)
	}
	if err != nil {
		f.t.Fatal(err)
	}
	f.router.Run("birdc", "-s", f.control(), "configure")
}

// until waits for an event of another program, and returns the time that it took.
func (f *fabric) until(limit time.Duration, what string, done func() bool) time.Duration {
	f.t.Helper()
	began := time.Now()
	for !done() {
		if time.Since(began) > limit {
			f.t.Fatalf("not after %s: %s\n%s", limit, what, f.birdc("show", "protocols", "all"))
		}
		time.Sleep(50 * time.Millisecond) // the other side is another program
	}
	return time.Since(began)
}

func (f *fabric) birdc(question ...string) string {
	out, err := f.router.Try("birdc", append([]string{"-s", f.control()}, question...)...)
	if err != nil {
		return err.Error()
	}
	return out
}

// hops returns the number of next hops of a prefix in the router's kernel.
func (f *fabric) hops(p netip.Prefix) int {
	out, err := f.router.Try("ip", family(p.Addr()), "route", "show", p.String())
	if err != nil {
		f.t.Fatal(err)
	}
	return strings.Count(out, "via")
}

func family(a netip.Addr) string {
	if a.Is4() {
		return "-4"
	}
	return "-6"
}

// of returns the desired state of a node with peers at these addresses.
func of(node string, prefixes []netip.Prefix, peers ...netip.Addr) wanted {
	id, _ := own(node)
	w := wanted{Desired: bgp.Desired{ASN: nodeASN, RouterID: id, Prefixes: prefixes}}
	for _, a := range peers {
		name := "router4"
		if a.Is6() {
			name = "router6"
		}
		w.Peers = append(w.Peers, secretPeer{
			Peer: bgp.Peer{Name: name, Address: a, Port: 179, ASN: routerASN, HoldTime: 9 * time.Second},
		})
	}
	return w
}

func hosts(all ...netip.Addr) (prefixes []netip.Prefix) {
	for _, a := range all {
		prefixes = append(prefixes, bgp.Host(a))
	}
	return prefixes
}
