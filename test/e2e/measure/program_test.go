//go:build linux

package measure

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// The program itself finds out everything that takes no dedicated server, in one run, and the
// cloud that runs with its profile is the one that was measured.
func TestTheProgramMeasures(t *testing.T) {
	is := profile.Cloud{
		Busy: new(profile.Locked), EffectsAtOnce: new(true), AddressesInTurn: new(true), RefuseReassign: new(true),
		OneTargetPerServer: new(true), ZoneIgnoresPrimaryIPs: new(true), ProxyHeaderInChecks: new(true), ServeUnjudged: new(true),
	}
	network := profile.Network{PrivateMTU: new(1380), AnySource: new(true), ProxyProtocol: new(1)}
	l := start(t, netlab.CloudLabOptions{
		Cloud: hcloudsim.Options{ActionTime: 300 * time.Millisecond}.With(is), Network: network,
	})

	file := filepath.Join(t.TempDir(), "cloud.json")
	path, err := cluster.BuildSimulator(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	program, err := l.RunOutside(process.Command{
		Name: "hcloud-sim", Path: path, Env: append(os.Environ(), "HCLOUD_TOKEN=the-token", "HCLOUD_ENDPOINT="+l.Endpoint()),
		Args: []string{"measure", "--yes", "--profile", file},
	})
	if err != nil {
		t.Fatal(err)
	}
	<-program.Done()
	said, _ := os.ReadFile(program.Log)
	t.Logf("%s", said)
	if code := program.ExitCode(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	if strings.Contains(string(said), string(measure.NotFoundOut)) {
		t.Error("something was not found out")
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	found, err := profile.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	want := profile.Default().Cloud
	overlay(t, &want, is)
	want.OneVSwitchSubnet, want.RefuseIPv6Targets, want.LatencySeconds = nil, nil, nil
	got := found.Cloud
	got.ActionSeconds, got.LatencySeconds = nil, nil
	if g, w := asText(t, got), asText(t, want); g != w {
		t.Errorf("the profile has\n%s\nwant\n%s", g, w)
	}
	if n := found.Network; n.PrivateMTU == nil || *n.PrivateMTU != 1380 || n.AnySource == nil || !*n.AnySource || n.ProxyProtocol == nil || *n.ProxyProtocol != 1 {
		t.Errorf("the profile's network is %s", asText(t, found.Network))
	}
	if !strings.Contains(string(said), "| private-mtu ") {
		t.Error("there is no report")
	}
	if strings.Contains(string(said)+string(text), "the-token") {
		t.Error("the token is shown")
	}
}

// overlay puts what one value has over another.
func overlay(t *testing.T, into *profile.Cloud, from profile.Cloud) {
	t.Helper()
	if err := json.Unmarshal([]byte(asText(t, from)), into); err != nil {
		t.Fatal(err)
	}
}

func asText(t *testing.T, v any) string {
	t.Helper()
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
