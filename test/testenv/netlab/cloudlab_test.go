//go:build linux

package netlab_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/internal/ipnet"
	"github.com/underlay-ccm/underlay/test/testenv/echo"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// lab is a CloudLab with a client of its API.
type lab struct {
	*netlab.CloudLab
	t     *testing.T
	dir   string
	cloud *hcloud.Client
}

func startLab(t *testing.T, o netlab.CloudLabOptions) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces take root")
	}
	o.Dir = t.TempDir()
	started, err := netlab.StartCloudLab(t.Context(), o)
	noError(t, err)
	t.Cleanup(func() {
		noError(t, started.Err())
		started.Stop()
		if t.Failed() {
			t.Log(netlab.Logs(o.Dir, 15))
		}
	})
	client := hcloud.NewClient(hcloud.WithToken("any"), hcloud.WithEndpoint(started.Endpoint()),
		hcloud.WithHTTPClient(&http.Client{Transport: &http.Transport{DialContext: started.DialContext}}),
		hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(10 * time.Millisecond)}))
	return &lab{CloudLab: started, t: t, dir: o.Dir, cloud: client}
}

// done waits for actions.
func (l *lab) done(actions ...*hcloud.Action) {
	l.t.Helper()
	noError(l.t, l.cloud.Action.WaitFor(l.t.Context(), actions...))
}

func (l *lab) network(ranges ...string) *hcloud.Network {
	l.t.Helper()
	opts := hcloud.NetworkCreateOpts{Name: "net", IPRange: ipNet(ranges[0])}
	for _, subnet := range ranges[1:] {
		opts.Subnets = append(opts.Subnets, hcloud.NetworkSubnet{
			Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipNet(subnet),
			NetworkZone: hcloud.NetworkZoneEUCentral,
		})
	}
	n, _, err := l.cloud.Network.Create(l.t.Context(), opts)
	noError(l.t, err)
	return n
}

func (l *lab) server(opts hcloud.ServerCreateOpts, networks ...*hcloud.Network) *hcloud.Server {
	l.t.Helper()
	opts.ServerType, opts.Image, opts.Networks = &hcloud.ServerType{Name: "cx23"}, &hcloud.Image{Name: "debian-12"}, networks
	made, _, err := l.cloud.Server.Create(l.t.Context(), opts)
	noError(l.t, err)
	l.done(append(made.NextActions, made.Action)...)
	return l.read(made.Server)
}

func (l *lab) read(s *hcloud.Server) *hcloud.Server {
	l.t.Helper()
	now, _, err := l.cloud.Server.GetByID(l.t.Context(), s.ID)
	noError(l.t, err)
	return now
}

// serve runs an echo on port 7 of a namespace.
func (l *lab) serve(name string, ns *netns.Namespace) {
	l.t.Helper()
	tcp, err := ns.Listen(l.t.Context(), "tcp", ":7")
	noError(l.t, err)
	udp, err := ns.ListenPacket(l.t.Context(), "udp", ":7")
	noError(l.t, err)
	l.t.Cleanup(echo.Serve(name, tcp, udp).Close)
}

// reply returns the name of the echo at an address, and the source address that it observed; empty
// if there is no reply.
func (l *lab) reply(from *netns.Namespace, to netip.Addr) string {
	l.t.Helper()
	a, err := netlab.Ask(l.t.Context(), from, "tcp", netip.AddrPortFrom(to, 7))
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s saw %s", a.Name, a.Source.Addr())
}

func (l *lab) expect(what, got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("%s: %q answers, want %q", what, got, want)
	}
}

func ipv4(s *hcloud.Server) netip.Addr { return ipnet.Addr(s.PublicNet.IPv4.IP) }
func ipv6(s *hcloud.Server) netip.Addr { return ipnet.Addr(s.PublicNet.IPv6.IP).Next() }
func inside(s *hcloud.Server, i int) netip.Addr {
	return ipnet.Addr(s.PrivateNet[i].IP)
}

func ipNet(text string) *net.IPNet {
	_, n, _ := net.ParseCIDR(text)
	return n
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls until a condition holds.
func (l *lab) eventually(what string, ok func() bool) {
	l.t.Helper()
	err := wait.PollUntilContextTimeout(l.t.Context(), 20*time.Millisecond, 15*time.Second, true,
		func(context.Context) (bool, error) {
			return ok(), nil
		})
	if err != nil {
		l.t.Fatalf("waiting until %s: %v", what, err)
	}
}

// Servers that are created through the API are reachable at the addresses that the API shows,
// public and in networks, while they have them.
func TestServersGetTheirCables(t *testing.T) {
	l := startLab(t, netlab.CloudLabOptions{})
	n := l.network("10.0.0.0/8", "10.1.0.0/24")
	a := l.server(hcloud.ServerCreateOpts{Name: "a"}, n)
	b := l.server(hcloud.ServerCreateOpts{Name: "b", PublicNet: &hcloud.ServerCreatePublicNet{EnableIPv6: true}})
	l.serve("a", l.Server(a.ID))
	l.serve("b", l.Server(b.ID))

	l.expect("a in public", l.reply(l.Outside(), ipv4(a)), "a saw "+netlab.OutsideIPv4.String())
	l.expect("a in public, IPv6", l.reply(l.Outside(), ipv6(a)), "a saw "+netlab.OutsideIPv6.String())
	l.expect("b from a, IPv6", l.reply(l.Server(a.ID), ipv6(b)), "b saw "+ipv6(a).String())
	l.expect("a from b, which has no IPv4", l.reply(l.Server(b.ID), ipv4(a)), "")

	attach := func(n *hcloud.Network) *hcloud.Server {
		t.Helper()
		action, _, err := l.cloud.Server.AttachToNetwork(t.Context(), b, hcloud.ServerAttachToNetworkOpts{
			Network: n,
		})
		noError(t, err)
		l.done(action)
		return l.read(b)
	}
	b = attach(n)
	l.expect("a from b, in the network", l.reply(l.Server(b.ID), inside(a, 0)), "a saw "+inside(b, 0).String())
	action, _, err := l.cloud.Server.DetachFromNetwork(t.Context(), b,
		hcloud.ServerDetachFromNetworkOpts{Network: n})
	noError(t, err)
	l.done(action)
	l.expect("a from b, out of the network", l.reply(l.Server(b.ID), inside(a, 0)), "")

	// A second network with the same range is another network.
	second := hcloud.NetworkCreateOpts{Name: "second", IPRange: ipNet("10.0.0.0/8"), Subnets: []hcloud.NetworkSubnet{{
		Type: hcloud.NetworkSubnetTypeCloud, IPRange: ipNet("10.1.0.0/24"), NetworkZone: hcloud.NetworkZoneEUCentral,
	}}}
	other, _, err := l.cloud.Network.Create(t.Context(), second)
	noError(t, err)
	c := l.server(hcloud.ServerCreateOpts{Name: "c"}, other)
	l.serve("c", l.Server(c.ID))
	b = attach(other)
	l.expect("c from b, in another network", l.reply(l.Server(b.ID), inside(c, 0)), "c saw "+inside(b, 0).String())
	if inside(a, 0) != inside(c, 0) {
		t.Errorf("a has %s and c %s: the test means them to be the same", inside(a, 0), inside(c, 0))
	}

	for _, s := range []*hcloud.Server{b, c} {
		action, _, err := l.cloud.Server.DetachFromNetwork(t.Context(), s,
			hcloud.ServerDetachFromNetworkOpts{Network: other})
		noError(t, err)
		l.done(action)
	}
	_, err = l.cloud.Network.Delete(t.Context(), other)
	noError(t, err)
	b = attach(n)
	l.expect("a from b, in the first network again", l.reply(l.Server(b.ID), inside(a, 0)), "a saw "+inside(b, 0).String())

	_, _, err = l.cloud.Server.DeleteWithResult(t.Context(), a)
	noError(t, err)
	l.expect("a, which is deleted", l.reply(l.Outside(), ipv4(a)), "")
	if l.Server(a.ID) != nil {
		t.Error("a deleted server has a namespace")
	}
}

// User data runs once, in the server's own network, and all its processes end with the server.
func TestUserDataRuns(t *testing.T) {
	l := startLab(t, netlab.CloudLabOptions{})
	folder, err := os.MkdirTemp("/var/tmp", "underlay") // /tmp is per server
	noError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	lock := filepath.Join(folder, "lock")
	script := fmt.Sprintf(`#!/bin/sh
ip -brief address show dev eth0
echo $$ >/run/pid && ls /sys/class/net
flock %s sleep infinity &
sleep 0.2
echo over
`, lock)
	a := l.server(hcloud.ServerCreateOpts{Name: "a", UserData: script})
	l.server(hcloud.ServerCreateOpts{Name: "b", UserData: "#cloud-config\n{}\n"})
	log := l.UserDataLog(a.ID)
	l.eventually("the script is over", func() bool { return strings.Contains(read(log), "ended with status 0") })
	reports := read(log)
	for _, want := range []string{ipv4(a).String() + "/32", ipv6(a).String() + "/64", "eth0\nlo\n", "\nover\n"} {
		if !strings.Contains(reports, want) {
			t.Errorf("the script doesn't say %q, but\n%s", want, reports)
		}
	}
	if !locked(t, lock) {
		t.Error("what the script has started in the background doesn't run")
	}

	action, _, err := l.cloud.Server.Poweroff(t.Context(), a)
	noError(t, err)
	l.done(action)
	l.eventually("what the script has started has ended", func() bool { return !locked(t, lock) })
	l.expect("a, which is off", l.reply(l.Outside(), ipv4(a)), "")
	action, _, err = l.cloud.Server.Poweron(t.Context(), a)
	noError(t, err)
	l.done(action)
	l.serve("a", l.Server(a.ID))
	l.expect("a, which is on again", l.reply(l.Outside(), ipv4(a)), "a saw "+netlab.OutsideIPv4.String())
	if again := read(log); again != reports {
		t.Errorf("user data has run again: the log has %d bytes, had %d", len(again), len(reports))
	}
}

func read(file string) string {
	content, _ := os.ReadFile(file)
	return string(content)
}

// locked reports whether a process holds a lock on a file.
func locked(t testing.TB, file string) bool {
	t.Helper()
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR, 0o600)
	noError(t, err)
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
}
