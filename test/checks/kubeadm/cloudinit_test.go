package kubeadm

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// userData are the keys of cloud-init in the user data; any other key is a mistake until it is
// added here. https://docs.cloud-init.io/en/latest/reference/modules.html
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
	// cloud-init recognizes the format by this line.
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

// The user data differs from the example only in the node's address.
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

// machine is a folder with the files that node.sh has written and a user has edited, and with fake
// programs that record their calls.
type machine struct{ root string }

func newMachine(t *testing.T, ip string, edits ...string) machine {
	t.Helper()
	m := machine{t.TempDir()}
	m.write(t, "/etc/os-release", "ID=debian\nVERSION_CODENAME=trixie\n")
	m.write(t, "/etc/apt/sources.list.d/keep", "")
	for program, does := range map[string]string{
		"apt-get": "", "apt-mark": "", "curl": "", "sysctl": "", "systemctl": "", "sleep": "",
		"kubeadm": `cp "$3" '` + m.root + `/joined'`, "ip": ip,
	} {
		m.write(t, "/bin/"+program, "#!/bin/bash\necho "+program+" \"$@\" >>'"+m.root+"/calls'\n"+does+"\n")
	}
	script := strings.NewReplacer(edits...).Replace(read(t, "cloud-init", "node.sh"))
	script = strings.ReplaceAll(script, "/etc/", m.root+"/etc/")
	if output, err := m.run(t, "-c", strings.ReplaceAll(script, "\nfile /usr/", "\nfile "+m.root+"/usr/")); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return m
}

func (m machine) write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(m.root+path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(m.root+path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (m machine) run(t *testing.T, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "bash", args...)
	cmd.Env = []string{"PATH=" + m.root + "/bin:" + os.Getenv("PATH")}
	both, err := cmd.CombinedOutput()
	return string(both), err
}

func (m machine) content(path string) string {
	content, _ := os.ReadFile(m.root + path) // "" if it doesn't exist
	return string(content)
}

// TestMakeNode runs the user data's only command on files that node.sh, the same without
// cloud-init, has written. test/e2e/kubeadm joins whole machines with it.
func TestMakeNode(t *testing.T) {
	data := shipped(t)
	if len(data.Runcmd) != 1 || len(data.Runcmd[0]) != 1 {
		t.Fatalf("runcmd is %v", data.Runcmd)
	}
	token := []string{"token: abcdef.0123456789abcdef\n", "token: 123456.0123456789abcdef\n"}
	const v4 = "echo '3: enp7s0    inet 10.0.0.7/32 brd 10.0.0.7 scope global dynamic enp7s0'"
	// The IPv6 address may come after the IPv4 one, and a deprecated one doesn't count.
	const both = `case "$*" in
-4*) ` + v4 + ` ;;
-6*-tentative*-temporary*) [ ! -e "$HOME/asked" ] || echo "2: eth0    inet6 2001:db8::1/64 scope global"; touch "$HOME/asked" ;;
esac`
	for name, test := range map[string]struct {
		ip           string
		edits        []string
		joins, fails string
	}{
		"joins":                     {ip: v4, edits: token, joins: "value: 10.0.0.7\n"},
		"joins with both addresses": {ip: both, edits: append(token, "dual_stack=no\n", "dual_stack=yes\n"), joins: "value: 10.0.0.7,2001:db8::1\n"},
		// A kubelet that joined without an address would have to be corrected later.
		"no address": {edits: token, fails: "attach it to the network"},
		// Unedited, it prepares the first control-plane node too.
		"no token": {ip: v4},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, strings.ReplaceAll(test.ip, "$HOME", "$(dirname \"$0\")"), test.edits...)
			const config = "/etc/kubernetes/join.yaml"
			// Any reader of the token could join.
			if info, err := os.Stat(m.root + config); err != nil || info.Mode().Perm() != 0o600 {
				t.Errorf("the file with the token: %v, %v", info, err)
			}
			output, err := m.run(t, m.root+data.Runcmd[0][0])
			if (err != nil) != (test.fails != "") || !strings.Contains(output, test.fails) {
				t.Errorf("%v: %s", err, output)
			}
			joined, calls := m.content("/joined"), m.content("/calls")
			if (joined != "") != (test.joins != "") || !strings.Contains(joined, test.joins) || strings.Contains(joined, "NODE_IP") {
				t.Errorf("it joins with\n%s\nafter\n%s", joined, calls)
			}
			if test.joins != "" && m.content(config) != "" {
				t.Error("the token is still there")
			}
			if !strings.Contains(calls, "systemctl restart containerd") || test.fails != "" && !strings.Contains(calls, "sleep") {
				t.Errorf("it called\n%s", calls)
			}
		})
	}
}
