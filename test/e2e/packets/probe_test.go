//go:build linux

package packets

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

const (
	// patience limits waits.
	patience = 2 * time.Minute
	// hostPort is the port of the echoes on machines and the external host.
	hostPort = 7000
)

// poll waits until a condition holds, and reports whether it did in time.
func poll(ctx context.Context, limit time.Duration, holds func() bool) bool {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, limit, true,
		func(context.Context) (bool, error) {
			return holds(), nil
		}) == nil
}

// await fails the test unless a condition holds in time; missing describes what is missing, or
// returns "".
func await(t *testing.T, what string, missing func() string) {
	t.Helper()
	var last string
	if !poll(t.Context(), patience, func() bool { last = missing(); return last == "" }) {
		t.Fatalf("%s: not within %s: %s", what, patience, last)
	}
}

// party is a client or a server: a name and a namespace.
type party struct {
	name  string
	space *netns.Namespace
}

func of(p *netlab.Pod) party              { return party{p.Name, p.Namespace} }
func machine(m *netlab.Machine) party     { return party{m.Name, m.Namespace} }
func outside(f *netlab.Lab) party         { return party{"outside", f.Outside()} }
func echo(a netip.Addr) netip.AddrPort    { return netip.AddrPortFrom(a, netlab.EchoPort) }
func ownPort(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, hostPort) }

// reaches expects a reply of a given server, with the observed source, over each of the networks. A
// new setup may take a moment.
func reaches(
	t *testing.T, from party, to netip.AddrPort, by string, source netip.Addr, networks ...string,
) {
	t.Helper()
	for _, network := range networks {
		var answer netlab.Answer
		var err error
		poll(t.Context(), patience, func() bool {
			answer, err = netlab.Ask(t.Context(), from.space, network, to)
			return err == nil
		})
		switch {
		case err != nil:
			t.Fatalf("%s does not reach %s at %s: %v", from.name, by, to, err)
		case answer.Name != by || answer.Source.Addr() != source:
			t.Errorf("%s asked %s over %s: %s answered, and saw %s; want %s, and %s", from.name, to, network, answer.Name, answer.Source.Addr(), by, source)
		}
	}
}

// refused expects no reply, over any of the networks.
func refused(t *testing.T, from party, to netip.AddrPort, networks ...string) {
	t.Helper()
	var all sync.WaitGroup // each takes the whole time limit of a request
	for _, network := range networks {
		all.Go(func() {
			if answer, err := netlab.Ask(t.Context(), from.space, network, to); err == nil {
				t.Errorf("%s asked %s over %s: %s answered, and saw %s; want nobody", from.name, to, network, answer.Name, answer.Source)
			}
		})
	}
	all.Wait()
}

func both() []string { return []string{"tcp", "udp"} }

// family returns the address that has the same family as another address.
func family(like, ipv4, ipv6 netip.Addr) netip.Addr {
	if like.Is4() {
		return ipv4
	}
	return ipv6
}

// everyPodReachesEveryPod sends requests from each pod to each other one, including those on the
// same machine, and expects the clients' own addresses as the observed sources.
func everyPodReachesEveryPod(t *testing.T, pods []*netlab.Pod) {
	t.Helper()
	for _, from := range pods {
		for _, to := range pods {
			if from == to {
				continue
			}
			for _, addr := range to.Addrs() {
				reaches(t, of(from), echo(addr), to.Name, family(addr, from.IPv4, from.IPv6), both()...)
			}
		}
	}
}

// runPods starts pods: names with their machines.
func runPods(
	t *testing.T, f *netlab.Lab, labels map[string]string, where ...[2]string,
) []*netlab.Pod {
	t.Helper()
	var pods []*netlab.Pod
	for _, w := range where {
		p, err := f.RunPod(t.Context(), w[0], w[1], labels)
		if err != nil {
			t.Fatal(err)
		}
		pods = append(pods, p)
	}
	return pods
}

// answerEverywhere starts echoes of machines and the external host on hostPort.
func answerEverywhere(t *testing.T, f *netlab.Lab, machines ...*netlab.Machine) {
	t.Helper()
	parties := []party{outside(f)}
	for _, m := range machines {
		parties = append(parties, machine(m))
	}
	for _, p := range parties {
		if _, err := f.Serve(t.Context(), p.space, p.name, hostPort); err != nil {
			t.Fatal(err)
		}
	}
}

// manyBytes sends more than fits into one packet, of the largest size that both pods' interfaces
// allow.
func manyBytes(t *testing.T, from, to *netlab.Pod) {
	t.Helper()
	const sent = 1 << 20
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := to.Namespace.Listen(ctx, "tcp", ":9000")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	got := make(chan int64, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			got <- -1
			return
		}
		defer conn.Close()
		n, _ := io.Copy(io.Discard, conn)
		got <- n
	}()
	conn, err := from.Namespace.Dial(ctx, "tcp", netip.AddrPortFrom(to.IPv4, 9000).String())
	if err != nil {
		t.Errorf("%s to %s: %v", from.Name, to.Name, err)
		return
	}
	deadline, _ := ctx.Deadline()
	err = errors.Join(conn.SetDeadline(deadline),
		func() error { _, err := conn.Write(make([]byte, sent)); return err }(), conn.Close())
	if n := <-got; err != nil || n != sent {
		t.Errorf("%s to %s: %d bytes of %d arrived (%v)", from.Name, to.Name, n, sent, err)
	}
}
