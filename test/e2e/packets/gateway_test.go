//go:build linux

package packets

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// border contains the pods and Services that communicate between the cloud and the vSwitch, with
// each behavior of its gateway.
type border struct {
	*vSwitch
	inCloud, onOne, onFour *netlab.Pod
	// served are a pod of each half, first the cloud's. all are the addresses of the Service for
	// both, ofCloud and ofDedicated those of the Services for one each.
	served                    []*netlab.Pod
	all, ofCloud, ofDedicated []netip.Addr
}

// gateways tests the table in docs/how-to/dedicated-servers.md about behavior that the provider
// doesn't document, row by row.
func (v *vSwitch) gateways(t *testing.T) {
	b := &border{vSwitch: v, inCloud: v.pods[0], onOne: v.pods[1], onFour: v.pods[3]}
	b.served = slices.Concat(
		runPods(t, v.f, map[string]string{"app": "across", "half": "cloud"}, [2]string{"served-cloud", "cloud"}),
		runPods(t, v.f, map[string]string{"app": "across", "half": "dedicated"}, [2]string{"served-four", "four"}))
	four := b.onFour.Machine // the others have an echo already
	if _, err := v.f.Serve(t.Context(), four.Namespace, four.Name, hostPort); err != nil {
		t.Fatal(err)
	}
	b.all = dualStack(t, v.f, "across", map[string]string{"app": "across"})
	b.ofCloud = dualStack(t, v.f, "of-cloud", map[string]string{"half": "cloud"})
	b.ofDedicated = dualStack(t, v.f, "of-dedicated", map[string]string{"half": "dedicated"})
	for _, row := range []struct {
		name    string
		gateway netlab.Gateway
		holds   func(*testing.T)
	}{
		{"sources are checked: nothing of the cluster is dropped", netlab.Gateway{}, b.sourcesChecked},
		{"sources are not checked: the same", netlab.Gateway{AnySource: true}, b.anySource},
		{"hosts are forgotten all the time: no packet is lost", netlab.Gateway{Forgets: 100 * time.Millisecond}, b.forgetful},
		{"no room for more hosts: new ones are reached by IPv6 alone", netlab.Gateway{Neighbors: places}, b.crowded},
		{"pods' addresses are refused: IPv6 alone crosses the border", netlab.Gateway{RefuseProxied: true}, b.refusing},
	} {
		t.Run(row.name, func(t *testing.T) {
			if err := v.f.SetGateway(t.Context(), row.gateway); err != nil {
				t.Fatal(err)
			}
			row.holds(t)
		})
	}
	if err := v.f.SetGateway(t.Context(), netlab.Gateway{}); err != nil {
		t.Fatal(err)
	}
	b.everythingCrosses(t)
}

// everythingCrosses expects pods of all machines to reach each other, Nodes and Services.
func (b *border) everythingCrosses(t *testing.T) {
	t.Helper()
	everyPodReachesEveryPod(t, b.pods)
	for _, p := range []*netlab.Pod{b.inCloud, b.onOne} {
		for _, m := range []*netlab.Machine{b.cloud, b.one} {
			reaches(t, of(p), ownPort(m.Private), m.Name, p.IPv4, "tcp")
		}
		for _, addr := range b.all {
			answeredByAll(t, p, addr, b.served)
		}
	}
	// Packets from a Node itself have the address of the interface as their source.
	for _, addr := range b.ofCloud {
		reaches(t, machine(b.one), echo(addr), b.served[0].Name, family(addr, b.one.Private, b.one.Public.IPv6), "tcp")
	}
	for _, addr := range b.ofDedicated {
		reaches(t, machine(b.cloud), echo(addr), b.served[1].Name, family(addr, b.cloud.Private, b.cloud.Public.IPv6), "tcp")
	}
}

func (b *border) dropped(t *testing.T) int {
	t.Helper()
	n, err := b.f.Dropped(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func (b *border) sourcesChecked(t *testing.T) {
	before := b.dropped(t)
	b.everythingCrosses(t)
	if after := b.dropped(t); after > before {
		t.Errorf("the gateway dropped %d packets of the cluster", after-before)
	}
	send, arrived := b.foreign(t)
	before = b.dropped(t)
	await(t, "the gateway drops what comes from another subnet", func() string {
		send()
		if b.dropped(t) <= before {
			return "it has dropped nothing"
		}
		return ""
	})
	if from := arrived(); from != "" {
		t.Errorf("a pod of the cloud was sent something from %s", from)
	}
}

func (b *border) anySource(t *testing.T) {
	b.everythingCrosses(t)
	send, arrived := b.foreign(t)
	await(t, "the gateway forwards what comes from another subnet", func() string {
		send()
		if from := arrived(); from != foreignAddress {
			return "arrived is what is from " + from
		}
		return ""
	})
}

// foreignAddress is in the network and outside of the vSwitch's subnet.
const foreignAddress = "10.2.0.9"

// foreign sends from a dedicated server to a pod of the cloud with a source outside of the subnet.
// arrived returns the source of the packet that the pod received, if any.
func (b *border) foreign(t *testing.T) (send func(), arrived func() string) {
	t.Helper()
	const port = 9001
	// Otherwise the pod's node would drop the packet, and the gateway's behavior would not show.
	restart := func(args ...string) {
		ctx := context.WithoutCancel(t.Context())
		if err := errors.Join(b.cloud.StopAgent(ctx), b.cloud.StartAgent(ctx, args...)); err != nil {
			t.Error(err)
		}
	}
	restart("--allow-inbound=" + foreignAddress + "/32")
	t.Cleanup(func() { restart() })
	to := netip.AddrPortFrom(b.inCloud.IPv4, port)
	run(t, b.one, "ip", "address", "add", foreignAddress+"/32", "dev", "lo")
	run(t, b.one, "ip", "route", "add", to.Addr().String(), "via", "10.1.0.1", "dev", "vswitch", "src", foreignAddress)
	listener, err := b.inCloud.Namespace.ListenPacket(t.Context(), "udp4", fmt.Sprintf(":%d", port))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := b.one.Namespace.Dial(t.Context(), "udp4", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, gone := b.one.Namespace.Run(context.WithoutCancel(t.Context()), "ip", "address", "del", foreignAddress+"/32", "dev", "lo")
		if err := errors.Join(gone, conn.Close(), listener.Close()); err != nil {
			t.Error(err)
		}
	})
	// The socket has chosen its source by now.
	run(t, b.one, "ip", "route", "del", to.Addr().String(), "dev", "vswitch")
	send = func() {
		if _, err := conn.Write([]byte("?")); err != nil {
			t.Fatal(err)
		}
	}
	arrived = func() string {
		if err := listener.SetReadDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		_, from, err := listener.ReadFrom(make([]byte, 16))
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return ""
		case err != nil:
			t.Fatal(err)
		}
		return from.(*net.UDPAddr).IP.String()
	}
	return send, arrived
}

// forgetful makes the gateway resolve hosts while it has packets for them.
func (b *border) forgetful(t *testing.T) {
	before, err := b.f.ARPTaken(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	streams := b.traffic(t)
	await(t, "the gateway has looked for hosts again and again", func() string {
		if now, err := b.f.ARPTaken(t.Context()); err != nil || now < before+20 {
			return fmt.Sprintf("it has taken %d answers, before %d (%v)", now, before, err)
		}
		return ""
	})
	flows(t, streams, aWhile)
	unhurt(t, streams)
}

// places are room for two Nodes, which load balancers and the cloud's half reach as well, and for a
// pod on each.
const places = 4

// crowded is a gateway that has no room for one more pod of a Node in its table.
func (b *border) crowded(t *testing.T) {
	late := b.pods[2] // on one, as onOne is
	known := []*netlab.Pod{b.onOne, b.onFour}
	crossing := func() {
		t.Helper()
		for _, p := range known {
			reaches(t, of(b.inCloud), ownPort(p.Machine.Private), p.Machine.Name, b.inCloud.IPv4, "tcp")
			reaches(t, of(b.inCloud), echo(p.IPv4), p.Name, b.inCloud.IPv4, both()...)
			reaches(t, of(p), echo(b.inCloud.IPv4), b.inCloud.Name, p.IPv4, both()...)
		}
	}
	crossing()
	b.closed(t, b.inCloud, late)
	if got, err := b.f.Neighbor(t.Context(), late.IPv4); err != nil || got != "" {
		t.Errorf("the gateway knows %s by %q (%v)", late.IPv4, got, err)
	}
	crossing()
	everyPodReachesEveryPod(t, []*netlab.Pod{b.onOne, late, b.onFour}) // without the gateway
	// The order of requests decides which of them is left out.
	if err := b.f.ForgetNeighbors(t.Context()); err != nil {
		t.Fatal(err)
	}
	reaches(t, of(b.inCloud), echo(late.IPv4), late.Name, b.inCloud.IPv4, both()...)
	reaches(t, of(late), echo(b.inCloud.IPv4), b.inCloud.Name, late.IPv4, both()...)
}

// closed expects two pods to reach each other by IPv6, and not by IPv4.
func (b *border) closed(t *testing.T, one, other *netlab.Pod) {
	t.Helper()
	var all sync.WaitGroup // each takes the whole time limit of a request
	for _, pair := range [][2]*netlab.Pod{{one, other}, {other, one}} {
		all.Go(func() { refused(t, of(pair[0]), echo(pair[1].IPv4), both()...) })
	}
	all.Wait()
	for _, pair := range [][2]*netlab.Pod{{one, other}, {other, one}} {
		reaches(t, of(pair[0]), echo(pair[1].IPv6), pair[1].Name, pair[0].IPv6, both()...)
	}
}

// refusing tests the statements of docs/tutorial/dedicated-server.md about a gateway that doesn't
// accept servers' ARP replies for their pods.
func (b *border) refusing(t *testing.T) {
	b.closed(t, b.inCloud, b.onOne)
	if got, err := b.f.Neighbor(t.Context(), b.onOne.IPv4); err != nil || got != "" {
		t.Errorf("the gateway knows %s by %q (%v)", b.onOne.IPv4, got, err)
	}
	reaches(t, of(b.inCloud), ownPort(b.one.Private), "one", b.inCloud.IPv4, "tcp")
	everyPodReachesEveryPod(t, []*netlab.Pod{b.onOne, b.onFour})
	if got, err := ask(t.Context(), b.f.Outside(), b.byPrivate.ipv4, frontage); err != nil || got.pod != "web" {
		t.Errorf("the load balancer's answer is %v (%v)", got, err)
	}

	// A dual-stack Service: by IPv6 every pod is reachable, by IPv4 those of the own half.
	var all sync.WaitGroup
	all.Go(func() { refused(t, of(b.inCloud), echo(ipv4Of(b.ofDedicated)), "tcp") })
	all.Go(func() { refused(t, of(b.onOne), echo(ipv4Of(b.ofCloud)), "tcp") })
	all.Go(func() { refused(t, machine(b.cloud), echo(ipv4Of(b.ofDedicated)), "tcp") })
	// Replies of a Node of the cloud, such as one with an API server, don't reach a pod either.
	all.Go(func() { refused(t, of(b.onOne), ownPort(b.cloud.Private), "tcp") })
	all.Wait()
	for _, p := range []*netlab.Pod{b.inCloud, b.onOne} {
		answeredByAll(t, p, ipv6Of(b.all), b.served)
	}
	reaches(t, of(b.inCloud), echo(ipv4Of(b.ofCloud)), b.served[0].Name, b.inCloud.IPv4, "tcp")
	reaches(t, of(b.onOne), echo(ipv4Of(b.ofDedicated)), b.served[1].Name, b.onOne.IPv4, "tcp")
	// Packets from a Node itself have the Node's address, which the gateway has in its table.
	reaches(t, machine(b.one), ownPort(b.cloud.Private), "cloud", b.one.Private, "tcp")
	reaches(t, machine(b.one), echo(ipv4Of(b.ofCloud)), b.served[0].Name, b.one.Private, "tcp")
}

func ipv4Of(addrs []netip.Addr) netip.Addr { return addrs[slices.IndexFunc(addrs, netip.Addr.Is4)] }
func ipv6Of(addrs []netip.Addr) netip.Addr { return addrs[slices.IndexFunc(addrs, netip.Addr.Is6)] }
