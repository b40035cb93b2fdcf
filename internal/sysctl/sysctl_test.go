package sysctl

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// values maps the paths of existing sysctls to their values.
type values map[string]string

func (v values) read(key string) (string, bool) {
	value, exists := v[key]
	return value, exists
}

func TestPlan(t *testing.T) {
	usual := values{forwardIPv4: "0", forwardIPv6: "0", strictAll: "0"}
	with := func(more values) values {
		all := maps.Clone(usual)
		maps.Copy(all, more)
		return all
	}
	both := Desired{IPv4: true, IPv6: true, RouterAdvertised: []string{"eth0"}, Asymmetric: []string{"eth1"}}
	for name, test := range map[string]struct {
		want Desired
		have values
		set  []string
	}{
		"nothing wanted":                {Desired{}, usual, nil},
		"one family":                    {Desired{IPv4: true}, usual, []string{forwardIPv4 + "=1"}},
		"all, advertisements first":     {both, with(values{acceptRA("eth0"): "1", strict("eth1"): "1"}), []string{acceptRA("eth0") + "=2", strict("eth1") + "=2", forwardIPv4 + "=1", forwardIPv6 + "=1"}},
		"done":                          {both, values{forwardIPv4: "1", forwardIPv6: "1", strictAll: "0", acceptRA("eth0"): "2", strict("eth1"): "2"}, nil},
		"advertisements to a program":   {Desired{RouterAdvertised: []string{"eth0"}}, with(values{acceptRA("eth0"): "0"}), nil},
		"interface that is gone":        {Desired{RouterAdvertised: []string{"eth0"}, Asymmetric: []string{"eth1"}}, usual, nil},
		"no filter":                     {Desired{Asymmetric: []string{"eth1"}}, with(values{strict("eth1"): "0"}), nil},
		"strict by all":                 {Desired{Asymmetric: []string{"eth1"}}, with(values{strictAll: "1", strict("eth1"): "0"}), []string{strict("eth1") + "=2"}},
		"loose by all":                  {Desired{Asymmetric: []string{"eth1"}}, with(values{strictAll: "2", strict("eth1"): "1"}), nil},
		"ARP without a wait":            {Desired{ProxyARP: []string{"eth0.4000", "gone"}}, with(values{delay("eth0.4000"): "80", delay("eth1"): "80"}), []string{delay("eth0.4000") + "=0"}},
		"ARP without a wait, done":      {Desired{ProxyARP: []string{"eth0.4000"}}, with(values{delay("eth0.4000"): "0"}), nil},
		"another uplink is not touched": {Desired{}, with(values{acceptRA("eth0"): "1", strict("eth0"): "1"}), nil},
	} {
		t.Run(name, func(t *testing.T) {
			changes, err := plan(test.want, test.have.read)
			if err != nil {
				t.Fatal(err)
			}
			var set []string
			for _, c := range changes {
				set = append(set, c.key+"="+c.to)
				if c.from != test.have[c.key] {
					t.Errorf("%s: from %q, it is %q", c.key, c.from, test.have[c.key])
				}
			}
			if diff := cmp.Diff(test.set, set); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
		})
	}
	if _, err := plan(Desired{IPv6: true}, values{forwardIPv4: "0"}.read); err == nil || !strings.Contains(err.Error(), "IPv6 podCIDR") {
		t.Errorf("a kernel without IPv6: %v", err)
	}
}

// tree is a folder that looks like /proc/sys.
func tree(t *testing.T, all values) string {
	t.Helper()
	root := t.TempDir()
	for key, value := range all {
		put(t, root, key, value)
	}
	return root
}

func put(t *testing.T, root, key, value string) {
	t.Helper()
	path := filepath.Join(root, key)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(value+"\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, root string) values {
	t.Helper()
	all := values{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		key, _ := filepath.Rel(root, path)
		all[key] = strings.TrimSpace(string(content))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func expect(t *testing.T, root string, want values) {
	t.Helper()
	if diff := cmp.Diff(want, contents(t, root)); diff != "" {
		t.Errorf("sysctls (-want +got):\n%s", diff)
	}
}

func apply(t *testing.T, s *Sysctls, want Desired) []string {
	t.Helper()
	changed, warnings, err := s.Apply(t.Context(), want)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("Apply: %v, warnings %q", err, warnings)
	}
	return changed
}

func cleanup(t *testing.T, s *Sysctls) []string {
	t.Helper()
	changed, err := s.Cleanup(t.Context())
	if err != nil {
		t.Fatalf("Cleanup: %v", err)
	}
	return changed
}

func TestChangesAreReportedOnceAndUndone(t *testing.T) {
	before := values{
		forwardIPv4: "0", forwardIPv6: "0", strictAll: "0", acceptRA("eth0"): "1", strict("eth0"): "1",
		"net/ipv6/conf/eth0/forwarding": "0", "net/ipv4/conf/all/accept_redirects": "0",
	}
	want := Desired{IPv4: true, IPv6: true, RouterAdvertised: []string{"eth0"}, Asymmetric: []string{"eth0"}}
	root, state := tree(t, before), filepath.Join(t.TempDir(), "state")
	s := New(Options{Root: root, StateDir: state})

	planned, _, err := s.Plan(t.Context(), want)
	if err != nil || len(planned) != 4 {
		t.Errorf("Plan: %q, %v, want 4 changes", planned, err)
	}
	expect(t, root, before)

	if diff := cmp.Diff(planned, apply(t, s, want)); diff != "" {
		t.Errorf("what was planned and what was done (-planned +done):\n%s", diff)
	}
	after := maps.Clone(before)
	maps.Copy(after, values{forwardIPv4: "1", forwardIPv6: "1", acceptRA("eth0"): "2", strict("eth0"): "2"})
	expect(t, root, after)
	if again := apply(t, s, want); len(again) > 0 {
		t.Errorf("at rest it changes %q", again)
	}
	// As the kernel does together with forwarding.
	put(t, root, "net/ipv4/conf/all/accept_redirects", "1")
	put(t, root, "net/ipv6/conf/eth0/forwarding", "1")

	// Another process repairs a value that was reset, and a third one cleans up.
	put(t, root, forwardIPv4, "0")
	if changed := apply(t, New(Options{Root: root, StateDir: state}), want); len(changed) != 1 {
		t.Errorf("the repair changed %q", changed)
	}
	third := New(Options{Root: root, StateDir: state})
	if changed := cleanup(t, third); len(changed) != 6 {
		t.Errorf("cleanup tells of %q, want 6 values", changed)
	}
	expect(t, root, before)
	if again := cleanup(t, third); len(again) > 0 {
		t.Errorf("a second cleanup changes %q", again)
	}
	if left := contents(t, state); len(left) > 0 {
		t.Errorf("the record is left: %v", left)
	}
}

func TestCleanupKeepsChangesOfOthers(t *testing.T) {
	root := tree(t, values{forwardIPv4: "0", forwardIPv6: "1", strictAll: "0", strict("eth0"): "1", strict("eth1"): "1"})
	s := New(Options{Root: root, StateDir: t.TempDir()})
	apply(t, s, Desired{IPv4: true, IPv6: true, Asymmetric: []string{"eth0", "eth1"}})
	put(t, root, strict("eth0"), "0")
	if err := os.Remove(filepath.Join(root, strict("eth1"))); err != nil {
		t.Fatal(err)
	}
	cleanup(t, s)
	expect(t, root, values{forwardIPv4: "0", forwardIPv6: "1", strictAll: "0", strict("eth0"): "0"})
}

func TestTheFirstValueIsRemembered(t *testing.T) {
	root := tree(t, values{forwardIPv4: "0", strictAll: "0", strict("eth0"): "1"})
	s := New(Options{Root: root, StateDir: t.TempDir()})
	want := Desired{Asymmetric: []string{"eth0"}}
	apply(t, s, want)
	put(t, root, strictAll, "1")
	put(t, root, strict("eth0"), "0")
	apply(t, s, want)
	cleanup(t, s)
	expect(t, root, values{forwardIPv4: "0", strictAll: "1", strict("eth0"): "1"})
}

func TestNothingIsChangedUnlessRecorded(t *testing.T) {
	before := values{forwardIPv4: "0", strictAll: "0"}
	root, state := tree(t, before), t.TempDir()
	if err := os.WriteFile(filepath.Join(state, "sysctl.json"), []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := New(Options{Root: root, StateDir: state})
	if _, _, err := s.Apply(t.Context(), Desired{IPv4: true}); err == nil || !strings.Contains(err.Error(), "sysctl.json") || !strings.Contains(err.Error(), "remove it") {
		t.Errorf("a damaged record: %v", err)
	}
	if _, err := s.Cleanup(t.Context()); err == nil {
		t.Error("cleanup took a damaged record for none")
	}
	s = New(Options{Root: root, StateDir: filepath.Join(state, "sysctl.json", "below a file")})
	if _, _, err := s.Apply(t.Context(), Desired{IPv4: true}); err == nil {
		t.Error("a record that can't be written is no error")
	}
	expect(t, root, before)
}

func TestUnsettableSysctlsAreReported(t *testing.T) {
	root := tree(t, values{strictAll: "0", "net/ipv4/conf/all/forwarding": "0"})
	s := New(Options{Root: root, StateDir: t.TempDir()})
	for _, link := range []string{"", "..", "../../kernel"} {
		if _, _, err := s.Plan(t.Context(), Desired{Asymmetric: []string{link}}); err == nil {
			t.Errorf("interface %q was taken", link)
		}
	}
	// A file that is readable and that not even root can write.
	if err := os.Symlink("/proc/version", filepath.Join(root, forwardIPv4)); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Apply(t.Context(), Desired{IPv4: true})
	if err == nil || !strings.Contains(err.Error(), forwardIPv4+" to 1") || !strings.Contains(err.Error(), "mounted writable") {
		t.Errorf("a value that can't be set: %v", err)
	}
}
