package cni

import (
	"context"
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the expected files anew instead of comparing them")

func prefixes(texts ...string) []netip.Prefix {
	all := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		all[i] = netip.MustParsePrefix(text)
	}
	return all
}

func TestRender(t *testing.T) {
	for name, want := range map[string]Desired{
		"ipv4":          {PodCIDRs: prefixes("10.244.1.0/24"), MTU: 1450},
		"ipv6":          {PodCIDRs: prefixes("2001:db8:1:2:1::/80"), MTU: 1280},
		"dualstack":     {PodCIDRs: prefixes("10.244.1.0/24", "fd00:10:244:1::/64"), MTU: 1500},
		"small-network": {PodCIDRs: prefixes("10.244.1.0/30"), MTU: 576},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := render(want, "/run/underlay/cni")
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".conflist")
			if *update {
				if err := os.WriteFile(path, got, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			expected, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(expected), string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		})
	}
}

func TestRenderRefuses(t *testing.T) {
	for name, test := range map[string]struct {
		want Desired
		says string
	}{
		"no podCIDR":          {Desired{MTU: 1500}, "one of each family"},
		"two of a family":     {Desired{PodCIDRs: prefixes("10.1.0.0/24", "10.2.0.0/24"), MTU: 1500}, "one of each family"},
		"three":               {Desired{PodCIDRs: prefixes("10.1.0.0/24", "fd00::/64", "10.2.0.0/24"), MTU: 1500}, "one of each family"},
		"no MTU":              {Desired{PodCIDRs: prefixes("10.1.0.0/24")}, "smallest"},
		"too little for IPv6": {Desired{PodCIDRs: prefixes("10.1.0.0/24", "fd00::/64"), MTU: 1279}, "raise it to 1280"},
	} {
		if _, err := render(test.want, "/d"); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q in it", name, err, test.says)
		}
	}
}

// machine is a node's folders, with the plugins installed.
type machine struct {
	*Network
	conf, bin, state, data string
}

func newMachine(t *testing.T) machine {
	t.Helper()
	root := t.TempDir()
	m := machine{conf: filepath.Join(root, "etc", "net.d"), bin: filepath.Join(root, "bin"), state: filepath.Join(root, "run")}
	m.data = filepath.Join(m.state, "cni")
	m.Network = New(Options{ConfDir: m.conf, BinDirs: []string{filepath.Join(root, "nowhere"), m.bin}, StateDir: m.state})
	for _, name := range plugins() {
		put(t, filepath.Join(m.bin, name), "")
		if err := os.Chmod(filepath.Join(m.bin, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content),
		0o644)); err != nil {
		t.Fatal(err)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func dualStack() Desired {
	return Desired{PodCIDRs: prefixes("10.244.1.0/24", "fd00:10:244:1::/64"), MTU: 1450}
}

func (m machine) apply(t *testing.T, want Desired) (changed []string, err error) {
	t.Helper()
	planned, _, planErr := m.Plan(t.Context(), want)
	changed, warnings, err := m.Apply(t.Context(), want)
	if len(warnings) > 0 {
		t.Errorf("warnings %q", warnings)
	}
	if diff := cmp.Diff(planned, changed); diff != "" || (planErr == nil) != (err == nil) {
		t.Errorf("planned and done differ: errors %v and %v\n%s", planErr, err, diff)
	}
	return changed, err
}

func TestTheFileIsWrittenOnceAndFollows(t *testing.T) {
	m := newMachine(t)
	put(t, filepath.Join(m.conf, "10-other.conflist"), "theirs")
	if _, _, err := m.Plan(t.Context(), dualStack()); err != nil {
		t.Errorf("Plan: %v", err)
	}
	if got := names(t, m.conf); !slices.Equal(got, []string{"10-other.conflist"}) {
		t.Errorf("planning left %q", got)
	}
	changed, err := m.apply(t, dualStack())
	if err != nil || len(changed) != 1 || !strings.Contains(changed[0], "10.244.1.0/24 and fd00:10:244:1::/64, MTU 1450") {
		t.Errorf("the first time: %q, %v", changed, err)
	}
	if got := names(t, m.conf); !slices.Equal(got, []string{FileName, "10-other.conflist"}) {
		t.Errorf("it left %q", got)
	}
	path := filepath.Join(m.conf, FileName)
	before, err := os.Stat(path)
	if err != nil || before.Mode().Perm() != 0o600 {
		t.Fatalf("%v, mode %v", err, before.Mode())
	}
	if changed, err := m.apply(t, dualStack()); err != nil || len(changed) > 0 {
		t.Errorf("at rest: %q, %v", changed, err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("at rest it was written again (%v)", err)
	}
	for name, change := range map[string]func(*Desired){
		"MTU":      func(d *Desired) { d.MTU = 1400 },
		"podCIDRs": func(d *Desired) { d.PodCIDRs = prefixes("10.244.9.0/24") },
	} {
		want := dualStack()
		change(&want)
		if changed, err := m.apply(t, want); err != nil || len(changed) != 1 {
			t.Errorf("another %s: %q, %v", name, changed, err)
		}
		content, err := os.ReadFile(path)
		rendered, _ := render(want, m.data)
		if err != nil || string(content) != string(rendered) {
			t.Errorf("another %s: the file holds %s (%v)", name, content, err)
		}
	}
	put(t, path, "edited by hand")
	if changed, err := m.apply(t, dualStack()); err != nil || len(changed) != 1 {
		t.Errorf("an edited file: %q, %v", changed, err)
	}
}

// A concurrent reader reads a complete file: an open previous version remains readable and
// unchanged.
func TestTheFileIsReplacedAsAWhole(t *testing.T) {
	m := newMachine(t)
	if _, err := m.apply(t, dualStack()); err != nil {
		t.Fatal(err)
	}
	before, err := os.Open(filepath.Join(m.conf, FileName))
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	want := dualStack()
	want.MTU = 1300
	put(t, filepath.Join(m.conf, temporaryName), strings.Repeat("left by a crash", 100))
	if _, err := m.apply(t, want); err != nil {
		t.Fatal(err)
	}
	content := make([]byte, 1<<16)
	n, err := before.Read(content)
	old, _ := render(dualStack(), m.data)
	if err != nil || string(content[:n]) != string(old) {
		t.Errorf("who had it open reads %q (%v)", content[:n], err)
	}
	if got := names(t, m.conf); !slices.Equal(got, []string{FileName}) {
		t.Errorf("left are %q", got)
	}
}

func TestObstaclesToTheRuntime(t *testing.T) {
	for name, test := range map[string]struct {
		arrange func(m machine)
		says    []string // none: ready
	}{
		"nothing":        {func(machine) {}, nil},
		"another before": {func(m machine) { put(t, filepath.Join(m.conf, "00-calico.conflist"), "{}") }, []string{"00-calico.conflist", "sorts before", "remove it"}},
		"two before": {func(m machine) {
			put(t, filepath.Join(m.conf, "04.conf"), "")
			put(t, filepath.Join(m.conf, "03.json"), "")
		}, []string{"03.json", "04.conf"}},
		"another behind":             {func(m machine) { put(t, filepath.Join(m.conf, "10-flannel.conflist"), "{}") }, nil},
		"what runtimes do not read":  {func(m machine) { put(t, filepath.Join(m.conf, "00-calico.conflist.bak"), "{}") }, nil},
		"a folder":                   {func(m machine) { put(t, filepath.Join(m.conf, "00.conf", "x"), "") }, nil},
		"no plugin":                  {func(m machine) { _ = os.Remove(filepath.Join(m.bin, "host-local")) }, []string{"host-local is not in", "/bin;", "install"}},
		"no plugins":                 {func(m machine) { _ = os.RemoveAll(m.bin) }, []string{"ptp", "host-local", "portmap"}},
		"a plugin that can't be run": {func(m machine) { _ = os.Chmod(filepath.Join(m.bin, "ptp"), 0o644) }, []string{"ptp"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			test.arrange(m)
			foreign := names(t, m.conf)
			_, err := m.apply(t, dualStack())
			if (err == nil) != (test.says == nil) {
				t.Fatalf("Apply: %v", err)
			}
			for _, part := range test.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
			got := names(t, m.conf)
			if !slices.Contains(got, FileName) {
				t.Error("the file was not written")
			}
			for _, f := range foreign {
				if !slices.Contains(got, f) {
					t.Errorf("the foreign file %s is gone", f)
				}
			}
			if again, _ := m.apply(t, dualStack()); len(again) > 0 {
				t.Errorf("written again while not usable: %q", again)
			}
		})
	}
}

func TestCleanupRemovesOnlyOurs(t *testing.T) {
	state := func(m machine, file string) { put(t, filepath.Join(m.data, networkName, file), "") }
	for name, test := range map[string]struct {
		address string
		left    []string
	}{
		"no pods":       {"", nil},
		"a pod":         {"10.244.1.7", []string{"10.244.1.7", "last_reserved_ip.0", "lock"}},
		"a pod of IPv6": {"fd00:10:244:1::7", []string{"fd00:10:244:1::7", "last_reserved_ip.0", "lock"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			put(t, filepath.Join(m.conf, "00-calico.conflist"), "theirs")
			_, _ = m.apply(t, dualStack())
			state(m, "lock")
			state(m, "last_reserved_ip.0")
			if test.address != "" {
				state(m, test.address)
			}
			// By a process that has applied nothing.
			fresh := New(m.options)
			changed, err := fresh.Cleanup(t.Context())
			if err != nil || len(changed) == 0 {
				t.Errorf("Cleanup: %q, %v", changed, err)
			}
			if got := names(t, m.conf); !slices.Equal(got, []string{"00-calico.conflist"}) {
				t.Errorf("left are %q", got)
			}
			if got := names(t, filepath.Join(m.data, networkName)); !slices.Equal(got, test.left) {
				t.Errorf("left of the state are %q, want %q", got, test.left)
			}
			if again, err := fresh.Cleanup(t.Context()); err != nil || len(again) > 0 {
				t.Errorf("again: %q, %v", again, err)
			}
		})
	}
}

func TestWatchReportsOtherFiles(t *testing.T) {
	m := newMachine(t)
	ctx, cancel := context.WithCancel(t.Context())
	calls, ended := make(chan struct{}, 100), make(chan error, 1)
	go func() { ended <- m.Watch(ctx, func() { calls <- struct{}{} }) }()
	expect := func(what string) {
		t.Helper()
		select {
		case <-calls:
		case err := <-ended:
			t.Fatalf("%s: the watch ended: %v", what, err)
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing was told of %s", what)
		}
		for len(calls) > 0 {
			<-calls
		}
	}
	expect("the beginning")
	put(t, filepath.Join(m.conf, "00-calico.conflist"), "{}")
	expect("a file that comes")
	if err := os.Remove(filepath.Join(m.bin, "ptp")); err != nil {
		t.Fatal(err)
	}
	expect("a plugin that goes")
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("the watch ended with %v", err)
	}
}
