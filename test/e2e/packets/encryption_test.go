//go:build linux

package packets

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// Encryption of a running cluster is enabled in phases and disabled again, without an interruption.
// In the phase require, no packet of a pod is on the wire in plain text, also while an agent is not
// running.
func TestARunningClusterIsEncrypted(t *testing.T) {
	needLab(t)
	wireGuard, err := cluster.BuildWireGuard(context.WithoutCancel(t.Context()), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, netlab.Options{Metal: true, Machines: []string{"one", "two", "three"}, WireGuard: wireGuard})
	r := &rack{f: f, one: f.Machine("one"), two: f.Machine("two"), three: f.Machine("three")}
	answerEverywhere(t, f, r.one, r.two, r.three)
	r.pods = append(
		runPods(t, f, map[string]string{"app": "client"}, [2]string{"pod-one", "one"}),
		runPods(t, f, map[string]string{"app": "server"}, [2]string{"pod-two", "two"}, [2]string{"pod-three", "three"})...)
	filterReversePaths(t, r.machines()...)
	for _, m := range r.machines() {
		countPlainText(t, m)
	}
	streams := r.traffic(t)
	phases := []string{"accept", "prefer", "require"}
	for _, phase := range phases {
		r.configure(t, "wireguard: always\nwireguardPhase: "+phase+"\n")
		r.awaitTunnels(t)
		flows(t, streams, aWhile)
	}
	t.Run("nothing is sent plainly", func(t *testing.T) {
		before := r.plainText(t)
		everyPodReachesEveryPod(t, r.pods)
		clusterIPs(t, f, r.pods[:1], r.pods[1:])
		manyBytes(t, r.pods[0], r.pods[2])
		r.nodesThroughTunnels(t)
		nodePorts(t, f, r.machines(), r.pods[:1], r.pods[1:])
		hostNetwork(t, f, r.machines(), r.pods)
		r.outside(t)
		r.one.KillAgent()
		flows(t, streams, aWhile)
		r.restarted(t, r.one)
		flows(t, streams, aWhile)
		if after := r.plainText(t); after != before {
			t.Errorf("%d packets of pods on the wire in plain text", after-before)
		}
	})
	t.Run("keys are replaced", func(t *testing.T) { r.replaceKeys(t, streams) })
	for _, phase := range []string{"prefer", "accept"} {
		r.configure(t, "wireguard: always\nwireguardPhase: "+phase+"\n")
		flows(t, streams, aWhile)
	}
	r.configure(t, "")
	flows(t, streams, aWhile)
	uninterrupted(t, streams)
	if r.plainText(t) == 0 {
		t.Error("plain text is not counted")
	}
	t.Run("a node that has lost its key sends nothing plainly", r.lostKey)
}

// replaceKeys gives all machines other ports, and with them other keys and a pre-shared one. The
// earlier devices are removed when no node uses them any more.
func (r *rack) replaceKeys(t *testing.T, streams []*netlab.Stream) {
	before := r.plainText(t)
	earlier := agent.TunnelLink(51820)
	r.configure(t, "wireguard: always\nwireguardPort: 51821\nwireguardPresharedKeyFile: "+presharedKey(t, 1)+"\n", "--sync-period=5s")
	r.awaitTunnels(t)
	flows(t, streams, aWhile)
	for _, m := range r.machines() {
		await(t, "the earlier device of "+m.Name+" is removed", func() string {
			if now := run(t, m, "ip", "-oneline", "link", "show"); strings.Contains(now, earlier) {
				return now
			}
			return ""
		})
	}
	flows(t, streams, aWhile)
	everyPodReachesEveryPod(t, r.pods)
	if after := r.plainText(t); after != before {
		t.Errorf("%d packets of pods on the wire in plain text", after-before)
	}
}

// presharedKey returns a file with a pre-shared key, which is another one for another number.
func presharedKey(t *testing.T, number byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	text := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{number}, 32))
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Nodes with different pre-shared keys receive each other's handshakes, and don't complete them.
func TestPresharedKeys(t *testing.T) {
	needLab(t)
	wireGuard, err := cluster.BuildWireGuard(context.WithoutCancel(t.Context()), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	const settings = "wireguard: always\nwireguardPhase: accept\nwireguardPresharedKeyFile: "
	right, wrong := settings+presharedKey(t, 1)+"\n", settings+presharedKey(t, 2)+"\n"
	f := start(t, netlab.Options{Metal: true, Machines: []string{"one"}, WireGuard: wireGuard, IPv4Only: true, Settings: wrong})
	f.Configure(right)
	if err := f.AddMachines(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	one, two := f.Machine("one"), f.Machine("two")
	tunnels := func(handshake string) func() string {
		return func() string {
			for m, peer := range map[*netlab.Machine]string{one: "two", two: "one"} {
				shown, _ := m.CheckAgent(t.Context()) // an unreachable node is an error
				if !regexp.MustCompile(fmt.Sprintf(`(?m)^%s +51820 +\S+ +%s +[1-9]\d{2,} +[1-9]\d{2,}$`, peer, handshake)).MatchString(shown) {
					return m.Name + ": " + shown
				}
			}
			return ""
		}
	}
	await(t, "handshakes arrive that are not completed", tunnels("none"))
	if err := one.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := one.StartAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "with the same key handshakes are completed", tunnels(`\d+s ago`))
}

// lostKey gives a machine another key, with which it is reached again.
func (r *rack) lostKey(t *testing.T) {
	r.configure(t, "wireguard: always\n")
	r.awaitTunnels(t)
	streams := r.traffic(t)
	before := r.plainText(t)
	if err := r.three.StopAgent(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.three.LoseTunnelKey(); err != nil {
		t.Fatal(err)
	}
	r.restarted(t, r.three)
	r.awaitTunnels(t)
	flows(t, streams, aWhile)
	if after := r.plainText(t); after != before {
		t.Errorf("%d packets of pods on the wire in plain text", after-before)
	}
}

// uninterrupted ends streams and expects no interruption. Up to two single packets may be lost: the
// user-space device loses one in some 40,000 also while nothing changes.
func uninterrupted(t *testing.T, streams []*netlab.Stream) {
	t.Helper()
	for i, s := range streams {
		if got := s.Stop(); got.Lost > 2 || got.Repeated > 0 || len(got.Sources) != 1 {
			t.Errorf("stream %d: of %d packets %d lost, %d repeated, from %v; longest gap %s at %s", i, got.Sent, got.Lost, got.Repeated, got.Sources, got.Gap, got.GapAt.Format("15:04:05.000"))
		}
	}
}

// configure restarts the agents one by one with other settings.
func (r *rack) configure(t *testing.T, settings string, args ...string) {
	t.Helper()
	r.f.Configure(settings)
	for _, m := range r.machines() {
		if err := m.StopAgent(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := m.StartAgent(t.Context(), args...); err != nil {
			t.Fatal(err)
		}
		ready(t, m)
		t.Logf("%s %s: %q", time.Now().Format("15:04:05.000"), m.Name, settings)
	}
}

// awaitTunnels waits until all machines have completed handshakes.
func (r *rack) awaitTunnels(t *testing.T) {
	t.Helper()
	for _, m := range r.machines() {
		await(t, m.Name+" has shaken hands with all others", func() string {
			return r.silentPeers(t, m)
		})
	}
}

// countPlainText counts the packets of pods on a machine's interface to the others.
func countPlainText(t *testing.T, m *netlab.Machine) {
	t.Helper()
	const rules = `table inet plain {
	chain sent { type filter hook postrouting priority 300
		oifname uplink ip saddr 10.244.0.0/16 counter
		oifname uplink ip daddr 10.244.0.0/16 counter
		oifname uplink ip6 saddr fd00:10:244::/48 counter
		oifname uplink ip6 daddr fd00:10:244::/48 counter
	}
}`
	if _, err := m.Namespace.Feed(t.Context(), rules, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

var packetsCounted = regexp.MustCompile(`counter packets (\d+)`)

func (r *rack) plainText(t *testing.T) (packets int) {
	t.Helper()
	for _, m := range r.machines() {
		for _, match := range packetsCounted.FindAllStringSubmatch(run(t, m, "nft", "list", "table", "inet", "plain"), -1) {
			n, err := strconv.Atoi(match[1])
			if err != nil {
				t.Fatal(err)
			}
			packets += n
		}
	}
	return packets
}

// nodesThroughTunnels expects pods and nodes to reach each other.
func (r *rack) nodesThroughTunnels(t *testing.T) {
	for _, p := range r.pods {
		for _, m := range r.machines() {
			if m == p.Machine {
				continue
			}
			reaches(t, of(p), ownPort(m.Public.IPv4), m.Name, p.IPv4, "tcp")
			reaches(t, of(p), ownPort(m.Public.IPv6), m.Name, p.IPv6, "tcp")
			nodeReachesPod(t, m, p)
		}
	}
}

func (r *rack) silentPeers(t *testing.T, m *netlab.Machine) string {
	status, err := m.TunnelHandshakes()
	if err != nil {
		return err.Error()
	}
	for peer, shaken := range status {
		if !shaken {
			return fmt.Sprintf("not with %s yet", peer)
		}
	}
	if want := len(r.machines()) - 1; len(status) != want {
		return fmt.Sprintf("%d peers, want %d", len(status), want)
	}
	return ""
}
