//go:build linux

package netfilter

import (
	"errors"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/underlay-ccm/underlay/policy"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// From include/uapi/linux/netfilter/nfnetlink_log.h.
const (
	logConfigure                             = unix.NFNL_SUBSYS_ULOG<<8 | 1
	logCommand, logMode, logThreshold        = 1, 2, 5
	logPayload, logPrefix                    = 9, 10
	logGroup                          uint16 = 100
)

type entry struct {
	prefix  string
	payload []byte
}

// logOf returns a function that returns the packets that the node has logged since its last call.
func logOf(t *testing.T, node *netns.Space) func() []entry {
	t.Helper()
	var socket *nl.NetlinkSocket
	var err error
	node.Do(func() { socket, err = nl.Subscribe(unix.NETLINK_NETFILTER) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(socket.Close)
	bind := nl.NewNetlinkRequest(logConfigure, unix.NLM_F_ACK)
	bind.AddData(&nl.Nfgenmsg{ResId: nl.Swap16(logGroup)})
	bind.AddData(nl.NewRtAttr(logCommand, []byte{1}))
	bind.AddData(nl.NewRtAttr(logMode, []byte{0, 0, 0xff, 0xff, 2, 0})) // whole packets
	bind.AddData(nl.NewRtAttr(logThreshold, []byte{0, 0, 0, 1}))        // each at once
	if err := socket.Send(bind); err != nil {
		t.Fatal(err)
	}
	if reply, _, err := socket.Receive(); err != nil || len(reply) != 1 ||
		nl.NativeEndian().Uint32(reply[0].Data) != 0 {
		t.Fatalf("binding to the group of nflog: %v, %v", reply, err)
	}
	return func() (all []entry) {
		for {
			buffer := make([]byte, 1<<16)
			n, _, err := unix.Recvfrom(socket.GetFd(), buffer, unix.MSG_DONTWAIT)
			if errors.Is(err, unix.EAGAIN) {
				return all
			}
			messages, failed := syscall.ParseNetlinkMessage(buffer[:max(n, 0)])
			if err := errors.Join(err, failed); err != nil {
				t.Fatal(err)
			}
			for _, m := range messages {
				if m.Header.Type>>8 == unix.NFNL_SUBSYS_ULOG && m.Header.Type&0xff == 0 {
					all = append(all, entryOf(t, m.Data))
				}
			}
		}
	}
}

func entryOf(t *testing.T, message []byte) (e entry) {
	t.Helper()
	attributes, err := nl.ParseRouteAttr(message[nl.SizeofNfgenmsg:])
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range attributes {
		switch a.Attr.Type {
		case logPrefix:
			e.prefix = strings.TrimRight(string(a.Value), "\x00")
		case logPayload:
			e.payload = a.Value
		}
	}
	return e
}

// TestDroppedPacketsAreLogged sends many at once. A packet is logged before it is counted.
func TestDroppedPacketsAreLogged(t *testing.T) {
	l := newPolicyLab(t)
	logged := logOf(t, l.node)
	l.setPod(1, 2, "x")
	long := strings.Repeat("long.", 40) + "name"
	for _, p := range []policy.Policy{
		{Name: policy.Name{Namespace: "a", Name: "deny"}, Types: []policy.Direction{policy.Ingress}},
		{Name: policy.Name{Namespace: "a", Name: "only"}, Types: []policy.Direction{policy.Ingress, policy.Egress}},
		{Name: policy.Name{Namespace: "a", Name: long}, Types: []policy.Direction{policy.Egress}},
	} {
		l.index.SetPolicy(p)
	}
	const many = 40
	drop := func() {
		t.Helper()
		before := l.dropped()
		for range many {
			l.send(l.far, podAddress(2, 2, 0), net.JoinHostPort(podAddress(1, 2, 0), "80"), strings.Repeat("x", 1000))
			l.send(l.pods[0], podAddress(1, 2, 1), net.JoinHostPort(podAddress(2, 2, 1), "80"), "x")
		}
		want := [2]uint64{before[policy.Ingress] + many, before[policy.Egress] + many}
		for end := time.Now().Add(10 * time.Second); l.dropped() != want; {
			if time.Now().After(end) {
				t.Fatalf("%v packets are dropped, want %v", l.dropped(), want)
			}
		}
	}

	l.apply()
	if drop(); strings.Contains(l.list(), "log ") {
		t.Errorf("there are rules that log, by default:\n%s", l.list())
	}
	if got := logged(); len(got) > 0 {
		t.Errorf("%d packets are logged by default: %q", len(got), got)
	}

	l.logGroup = logGroup
	l.apply()
	began := time.Now()
	drop()
	got := map[string]int{}
	for _, e := range logged() {
		got[e.prefix]++
		if len(e.payload) == 0 || len(e.payload) > 128 {
			t.Errorf("%d bytes of a packet are logged", len(e.payload))
		}
	}
	// The bucket has ten, and gets one a second.
	most := 11 + int(time.Since(began).Seconds())
	for _, prefix := range []string{"ingress [a/deny a/only]", ("egress [a/" + long)[:127]} {
		if got[prefix] < 10 || got[prefix] > most {
			t.Errorf("%d of %d packets are logged as %q, want 10 to %d; all: %v", got[prefix], many, prefix, most, got)
		}
	}
	if len(got) != 2 {
		t.Errorf("logged: %v", got)
	}

	l.logGroup = 0
	l.apply()
	if drop(); len(logged()) > 0 {
		t.Error("packets are still logged")
	}
}

// dropped returns the sum of all chains by direction.
func (l *policyLab) dropped() (sum [2]uint64) {
	l.t.Helper()
	var drops map[*policy.Chain]uint64
	var err error
	l.node.Do(func() { drops, err = l.table.Drops(l.t.Context()) })
	if err != nil {
		l.t.Fatal(err)
	}
	for chain, packets := range drops {
		sum[chain.Direction] += packets
	}
	return sum
}
