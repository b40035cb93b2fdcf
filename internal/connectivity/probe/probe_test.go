//go:build linux

package probe

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/connectivity"
)

// served starts a probe of that name until the test ends, and returns its address.
func served(t *testing.T, name, address string) netip.AddrPort {
	t.Helper()
	tcp, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- serve(ctx, name, tcp, udp) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("told to end: %v", err)
		}
	})
	return netip.MustParseAddrPort(tcp.Addr().String())
}

func TestProbeFindsTheServingPod(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0"} {
		at := served(t, "b", address)
		var trials []connectivity.Trial
		for _, kind := range []connectivity.Kind{
			connectivity.TCP, connectivity.UDP, connectivity.MTU, connectivity.Dial,
		} {
			trials = append(trials, connectivity.Trial{Path: connectivity.Pod, Kind: kind, From: "a", To: "b", At: at})
		}
		for _, r := range TryAll(t.Context(), trials, 0) {
			if r.State() != connectivity.Open {
				t.Errorf("%s %s: %+v", address, r.Kind, r)
			}
			if r.Kind == connectivity.MTU && (r.Interface < 1500 || r.Carried != r.Interface) {
				t.Errorf("%s: loopback carries %d of %d", address, r.Carried, r.Interface)
			}
		}
	}
}

func TestFailures(t *testing.T) {
	stranger := served(t, "c", "127.0.0.1:0")
	silent, err := net.ListenPacket("udp", "127.0.0.1:0") // no program reads it
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	quiet := netip.MustParseAddrPort(silent.LocalAddr().String())
	closed := netip.MustParseAddrPort("127.0.0.1:1")
	for _, c := range []struct {
		path connectivity.Path
		kind connectivity.Kind
		at   netip.AddrPort
		want connectivity.Failure
	}{
		{connectivity.Pod, connectivity.TCP, stranger, connectivity.Stranger},
		{connectivity.Pod, connectivity.UDP, stranger, connectivity.Stranger},
		{connectivity.Service, connectivity.TCP, stranger, ""}, // any pod may reply there
		{connectivity.Pod, connectivity.TCP, closed, connectivity.Refused},
		{connectivity.Pod, connectivity.UDP, closed, connectivity.Refused},
		{connectivity.Pod, connectivity.MTU, closed, connectivity.Refused},
		{connectivity.Outside, connectivity.Dial, closed, connectivity.Refused},
		{connectivity.HealthCheck, connectivity.HTTP, closed, connectivity.Refused},
		{connectivity.Pod, connectivity.UDP, quiet, connectivity.Silent},
		{connectivity.Pod, connectivity.MTU, quiet, connectivity.Silent},
		{connectivity.Pod, "smell", quiet, connectivity.Other},
	} {
		r := TryAll(t.Context(), []connectivity.Trial{{Path: c.path, Kind: c.kind, From: "a", To: "b", At: c.at}}, 0)[0]
		if r.Failure != c.want {
			t.Errorf("%s at %s: %q (%s), want %q", c.kind, c.at, r.Failure, r.Detail, c.want)
		}
	}
}

// A path that is closed at first is tried again until the time to settle is over.
func TestSettles(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() { // the first connection fails
		for i := 0; ; i++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if i > 0 {
				_, _ = conn.Write([]byte("b\n"))
			}
			_ = conn.Close()
		}
	}()
	trial := connectivity.Trial{Path: connectivity.Pod, Kind: connectivity.TCP, To: "b", At: netip.MustParseAddrPort(l.Addr().String())}
	if r := TryAll(t.Context(), []connectivity.Trial{trial}, time.Minute)[0]; r.Failure != "" {
		t.Errorf("%+v", r)
	}
}

func TestLargest(t *testing.T) {
	for _, real := range []int{576, 577, 1280, 1400, 1499, 1500, 9000} {
		asked := 0
		got := largest(576, 1500, func(size int) bool { asked++; return size <= real })
		if got != min(real, 1500) || asked > 12 {
			t.Errorf("%d after %d questions, want %d", got, asked, min(real, 1500))
		}
	}
}

func TestRun(t *testing.T) {
	at := served(t, "b", "127.0.0.1:0")
	world := connectivity.World{Targets: []netip.AddrPort{at}}
	text, err := json.Marshal(world)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Run(t.Context(), "a", string(text), 0, &out); err != nil {
		t.Fatal(err)
	}
	results, err := connectivity.ReadResults(out.Bytes(), connectivity.Plan("a", world))
	if err != nil || !slices.ContainsFunc(results, func(r connectivity.Result) bool { return r.Failure == "" }) {
		t.Errorf("%+v, %v", results, err)
	}
	if err := Run(t.Context(), "a", "{", 0, &out); err == nil {
		t.Error("what can't be read is no error")
	}
}
