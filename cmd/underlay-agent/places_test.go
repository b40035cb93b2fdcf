//go:build linux

package main

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/underlay-ccm/underlay/routes/agent"
	"github.com/underlay-ccm/underlay/test/testenv/controlplane"
)

func TestEveryWrongPlaceIsNamed(t *testing.T) {
	if wrong := defaults().places(); len(wrong) > 0 {
		t.Errorf("the defaults: %v", wrong)
	}
	o := defaults()
	o.cniConfDir, o.cniBinDirs, o.stateDir, o.sysctls = "rel", []string{"/opt", "./bin"}, "", "proc"
	o.apiServer = "10.0.0.2"
	_, err := o.settle()
	if err == nil {
		t.Fatal("settle accepted it")
	}
	for _, want := range []string{`--cni-conf-dir "rel"`, `--cni-bin-dir "./bin"`, `--state-dir ""`, `--sysctls "proc"`, `--api-server "10.0.0.2"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in: %v", want, err)
		}
	}
	if err := cleanup(t.Context(), o, io.Discard); err == nil || !strings.Contains(err.Error(), `--state-dir ""`) {
		t.Errorf("cleanup goes to work there: %v", err)
	}
	o = defaults()
	o.cniBinDirs = nil
	if wrong := o.places(); len(wrong) != 1 || !strings.Contains(wrong[0].Error(), "--cni-bin-dir") {
		t.Errorf("no folder of plugins: %v", wrong)
	}
	for url, good := range map[string]bool{
		"https://10.0.0.2:6443": true, "https://[fd00::1]:6443": true, "https://api.example": true,
		"ftp:/x": false, "http://10.0.0.2": false, "https://": false, "https://:6443": false,
	} {
		o := defaults()
		o.apiServer = url
		if err := errors.Join(o.places()...); (err == nil) != good {
			t.Errorf("%s: %v, want good %v", url, err, good)
		}
	}
}

// An invalid setting of the client is reported together with the other mistakes.
func TestAKubeconfigThatIsNotThere(t *testing.T) {
	o := defaults()
	o.nodeName, o.kubeconfig = "", filepath.Join(t.TempDir(), "none")
	_, err := o.settle()
	if err == nil {
		t.Fatal("settle accepted it")
	}
	for _, want := range []string{"--node-name: ", `--kubeconfig "` + o.kubeconfig + `": can't be used: `, "; name a file"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in: %v", want, err)
		}
	}
}

// Pools of dedicated servers are ranges of pods like the others, and recognized as theirs.
func TestTheVSwitchOfTheFile(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := controlplane.WriteKubeconfig(kubeconfig, &rest.Config{Host: "https://10.0.0.2:6443"}); err != nil {
		t.Fatal(err)
	}
	o := machineOptions(t, kubeconfig)
	content := "apiVersion: underlay.dev/v1alpha1\nkind: CloudConfig\nnetwork: cluster\nfamilies: {ipv4: cloud, ipv6: none}\n" +
		"vswitch: {subnet: 10.1.0.0/16}\npools:\n- {name: cloud, cidr: 10.244.0.0/16}\n" +
		"- {name: dedicated, source: vswitch, cidr: 10.1.128.0/17, nodeSelector: dedicated=true}\n"
	if err := os.WriteFile(o.config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := o.settle()
	if err != nil {
		t.Fatal(err)
	}
	pools := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("10.1.128.0/17")}
	if v := s.VSwitch; v.Subnet.String() != "10.1.0.0/16" || v.Gateway.String() != "10.1.0.1" || !slices.Equal(v.Pools, pools[1:]) {
		t.Errorf("got %+v", v)
	}
	if !slices.Equal(s.Pools, pools) || !slices.Equal(s.PodRanges, pools) {
		t.Errorf("pools are %v, pods' ranges %v, want %v", s.Pools, s.PodRanges, pools)
	}
}

func TestCheckReportsProxies(t *testing.T) {
	answers := []agent.Proxy{{Link: 3, Addr: netip.MustParseAddr("10.1.129.0"), Protocol: agent.Protocol}}
	for want, d := range map[string]agent.Decision{
		"": {},
		"proxy ARP: as it should be, on eth0.4000\n": {Answers: answers, View: agent.View{ProxyARP: []string{"eth0.4000"}}},
		"proxy ARP would change: ARP is answered for 10.1.129.0 on interface 3\n": {
			Answers: answers, Changes: agent.ProxyPlan{Add: answers},
		},
	} {
		var out strings.Builder
		if printProxies(&out, d); out.String() != want {
			t.Errorf("it says %q, want %q", out.String(), want)
		}
	}
}

func TestTheVersionIsTheAgents(t *testing.T) {
	for args, want := range map[string]bool{"--version": true, "--version=raw": false, "": false} {
		cmd := newCommand()
		t.Cleanup(func() { _ = cmd.PersistentFlags().Set("version", "false") }) // process-wide flag
		run, rest, err := cmd.Find(strings.Fields("run " + args))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(cmd.PersistentFlags().Set("version", "false"), run.ParseFlags(rest)); err != nil {
			t.Fatal(err)
		}
		if line, requested := versionLine(run); requested != want || !strings.HasPrefix(line, "underlay-agent v") {
			t.Errorf("%q: asked %v, %q", args, requested, line)
		}
	}
}
