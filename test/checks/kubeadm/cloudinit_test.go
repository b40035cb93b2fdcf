package kubeadm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// userData are the keys of cloud-init that the user data has; any other is a
// mistake until it is added here.
// https://docs.cloud-init.io/en/latest/reference/modules.html
type userData struct {
	PackageUpdate bool       `json:"package_update"`
	Packages      []string   `json:"packages"`
	WriteFiles    []file     `json:"write_files"`
	Runcmd        [][]string `json:"runcmd"`
}

type file struct{ Path, Permissions, Content string }

func shipped(t *testing.T) userData {
	t.Helper()
	content := read(t, "cloud-init", "node.yaml")
	// By this line cloud-init knows what it is.
	if first, _, _ := strings.Cut(content, "\n"); first != "#cloud-config" {
		t.Fatalf("the first line is %q", first)
	}
	var data userData
	if err := yaml.UnmarshalStrict([]byte(content), &data); err != nil {
		t.Fatal(err)
	}
	return data
}

func (d userData) file(t *testing.T, path string) file {
	t.Helper()
	i := slices.IndexFunc(d.WriteFiles, func(f file) bool { return f.Path == path })
	if i < 0 {
		t.Fatalf("%s is not written", path)
	}
	return d.WriteFiles[i]
}

func TestDropInIsTheShippedOne(t *testing.T) {
	got := shipped(t).file(t, "/etc/systemd/networkd.conf.d/90-underlay.conf").Content
	if want := read(t, "agent", "90-underlay.conf"); got != want {
		t.Errorf("the user data has\n%s\nand deploy/agent/90-underlay.conf has\n%s", got, want)
	}
}

// systemd warns of what it doesn't know and goes on, so a misspelled key would
// only show when routes are lost.
// https://www.freedesktop.org/software/systemd/man/latest/networkd.conf.html
func TestDropInKeepsRoutes(t *testing.T) {
	want := map[string]string{
		"Network.ManageForeignRoutes":             "no",
		"Network.ManageForeignRoutingPolicyRules": "no",
	}
	got := map[string]string{}
	section := ""
	for line := range strings.Lines(read(t, "agent", "90-underlay.conf")) {
		line = strings.TrimSpace(line)
		key, value, assigned := strings.Cut(line, "=")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "[") && strings.HasSuffix(line, "]"):
			section = strings.Trim(line, "[]")
		case assigned:
			got[section+"."+key] = value
		default:
			t.Errorf("line %q is neither a section nor a key", line)
		}
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the drop-in says %v, want %v", got, want)
	}
}

// The user data differs from the example in the node's address alone.
func TestJoinConfigurationIsTheExample(t *testing.T) {
	var ours, example any
	if err := yaml.UnmarshalStrict([]byte(shipped(t).file(t, "/etc/kubernetes/join.yaml").Content), &ours); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(read(t, "kubeadm", "cloud", "join.yaml"), "value: 10.0.0.3", "value: NODE_IP", 1)
	if err := yaml.UnmarshalStrict([]byte(text), &example); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(ours, example) {
		t.Errorf("the user data has\n%v\nand deploy/kubeadm/cloud/join.yaml has\n%v", ours, example)
	}
}

// The token lets everybody join who reads it.
func TestOnlyRootReadsTheToken(t *testing.T) {
	if mode := shipped(t).file(t, "/etc/kubernetes/join.yaml").Permissions; mode != "0600" {
		t.Errorf("the file with the token has mode %q", mode)
	}
}

// machine is a folder in which the user data's files lie, and programs that
// write down how they are called.
type machine struct{ root, calls string }

func newMachine(t *testing.T, data userData, addresses string) machine {
	t.Helper()
	m := machine{root: t.TempDir()}
	m.calls = filepath.Join(m.root, "calls")
	for _, f := range data.WriteFiles {
		m.write(t, f.Path, m.rebase(f.Content))
	}
	m.write(t, "/etc/os-release", "ID=debian\nVERSION_CODENAME=trixie\n")
	m.write(t, "/etc/apt/sources.list.d/keep", "")
	for _, program := range []string{"apt-get", "apt-mark", "curl", "sysctl", "systemctl", "sleep"} {
		m.program(t, program, "")
	}
	m.program(t, "kubeadm", `cp "$3" '`+m.root+`/joined'`)
	m.program(t, "ip", "printf '%s' '"+addresses+"'")
	return m
}

// rebase moves what a script changes of the machine into the folder.
func (m machine) rebase(script string) string {
	return strings.ReplaceAll(script, "/etc/", m.root+"/etc/")
}

func (m machine) write(t *testing.T, path, content string) {
	t.Helper()
	path = filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (m machine) program(t *testing.T, name, does string) {
	t.Helper()
	m.write(t, "bin/"+name, "#!/bin/bash\necho "+name+" \"$@\" >>'"+m.calls+"'\n"+does+"\n")
}

// run runs the user data's only command.
func (m machine) run(t *testing.T, data userData) (output string, err error) {
	t.Helper()
	if len(data.Runcmd) != 1 || len(data.Runcmd[0]) != 1 {
		t.Fatalf("runcmd is %v", data.Runcmd)
	}
	cmd := exec.CommandContext(t.Context(), "bash", m.root+data.Runcmd[0][0])
	cmd.Env = []string{"PATH=" + m.root + "/bin:" + os.Getenv("PATH")}
	var both bytes.Buffer
	cmd.Stdout, cmd.Stderr = &both, &both
	err = cmd.Run()
	return both.String(), err
}

func (m machine) called(t *testing.T) string {
	t.Helper()
	calls, err := os.ReadFile(m.calls)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(calls), m.root, "")
}

// withToken is the user data after somebody has edited it.
func withToken(t *testing.T) userData {
	t.Helper()
	data := shipped(t)
	for i, f := range data.WriteFiles {
		data.WriteFiles[i].Content = strings.ReplaceAll(f.Content, "token: abcdef.0123456789abcdef\n", "token: 123456.0123456789abcdef\n")
	}
	return data
}

func TestJoins(t *testing.T) {
	data := withToken(t)
	m := newMachine(t, data, "3: enp7s0    inet 10.0.0.7/32 brd 10.0.0.7 scope global dynamic enp7s0\n")
	if output, err := m.run(t, data); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	calls := m.called(t)
	last := -1
	for _, step := range []string{
		"sysctl --quiet --system",
		"systemctl try-restart systemd-networkd",
		"apt-get -qq update",
		"containerd.io kubelet kubeadm kubernetes-cni",
		"systemctl restart containerd",
		"ip -4 -o address show to 10.0.0.0/24",
		"kubeadm join --config /etc/kubernetes/join.yaml",
	} {
		at := strings.Index(calls, step)
		if at <= last {
			t.Errorf("%q does not come after what it needs:\n%s", step, calls)
		}
		last = at
	}
	joined, err := os.ReadFile(m.root + "/joined")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(joined), "value: 10.0.0.7\n") || strings.Contains(string(joined), "NODE_IP") {
		t.Errorf("it joins with\n%s", joined)
	}
	if _, err := os.Stat(m.root + "/etc/kubernetes/join.yaml"); !os.IsNotExist(err) {
		t.Errorf("the token is still there: %v", err)
	}
	for _, source := range []string{"docker", "kubernetes"} {
		list, err := os.ReadFile(m.root + "/etc/apt/sources.list.d/" + source + ".list")
		if err != nil || !strings.Contains(string(list), "signed-by="+m.root+"/etc/apt/keyrings/"+source+".asc] https://") {
			t.Errorf("packages of %s: %v %s", source, err, list)
		}
	}
}

// The IPv6 address may come after the IPv4 one, and one that is about to go is none.
func TestJoinsWithBothAddresses(t *testing.T) {
	data := withToken(t)
	for i, f := range data.WriteFiles {
		data.WriteFiles[i].Content = strings.ReplaceAll(f.Content, "dual_stack=no\n", "dual_stack=yes\n")
	}
	m := newMachine(t, data, "")
	asked := m.root + "/asked"
	m.program(t, "ip", `case "$*" in
-4*) echo "3: enp7s0    inet 10.0.0.7/32 brd 10.0.0.7 scope global dynamic enp7s0" ;;
-6*-tentative*-temporary*) [ ! -e `+asked+` ] || echo "2: eth0    inet6 2001:db8::1/64 scope global"; touch `+asked+` ;;
esac`)
	if output, err := m.run(t, data); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	joined, err := os.ReadFile(m.root + "/joined")
	if err != nil || !strings.Contains(string(joined), "value: 10.0.0.7,2001:db8::1\n") {
		t.Errorf("it joins with\n%s (%v)", joined, err)
	}
}

// A kubelet that joined without an address would have to be told later.
func TestDoesNotJoinWithoutAnAddress(t *testing.T) {
	data := withToken(t)
	m := newMachine(t, data, "")
	output, err := m.run(t, data)
	if err == nil || !strings.Contains(output, "attach it to the network") {
		t.Errorf("%v: %s", err, output)
	}
	if calls := m.called(t); strings.Contains(calls, "kubeadm join") || !strings.Contains(calls, "sleep") {
		t.Errorf("without an address it called\n%s", calls)
	}
}

// As it is shipped, it makes the first control-plane node ready too.
func TestDoesNotJoinWithoutAToken(t *testing.T) {
	data := shipped(t)
	m := newMachine(t, data, "")
	if output, err := m.run(t, data); err != nil || !strings.Contains(output, "ready for kubeadm") {
		t.Errorf("%v: %s", err, output)
	}
	if calls := m.called(t); strings.Contains(calls, "kubeadm join") || !strings.Contains(calls, "systemctl restart containerd") {
		t.Errorf("without a token it called\n%s", calls)
	}
}
