//go:build linux

package cni

import (
	"encoding/json"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/test/testenv/complete"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
)

// runtime calls plugins as a container runtime does: one after the other, each with the result of
// the previous one.
type runtime struct {
	t    *testing.T
	node *netns.Space
	bin  string
	file map[string]any
}

func (r *runtime) call(command, id string, pod *netns.Space) map[string]any {
	r.t.Helper()
	var result map[string]any
	for _, p := range r.file["plugins"].([]any) {
		config := maps.Clone(p.(map[string]any))
		config["cniVersion"], config["name"] = r.file["cniVersion"], r.file["name"]
		if capabilities, has := config["capabilities"].(map[string]any); has && capabilities["portMappings"] == true {
			config["runtimeConfig"] = map[string]any{"portMappings": []any{map[string]any{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}}}
		}
		if result != nil {
			config["prevResult"] = result
		}
		stdin, err := json.Marshal(config)
		if err != nil {
			r.t.Fatal(err)
		}
		program := filepath.Join(r.bin, config["type"].(string))
		var out []byte
		r.node.Do(func() {
			cmd := exec.CommandContext(r.t.Context(), program)
			cmd.Stdin = strings.NewReader(string(stdin))
			cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+id, "CNI_NETNS="+pod.Path(), "CNI_IFNAME=eth0", "CNI_PATH="+r.bin)
			out, err = cmd.Output()
		})
		if err != nil {
			r.t.Fatalf("%s %s: %v\n%s", program, command, err, out)
		}
		if command == "ADD" {
			result = map[string]any{}
			if err := json.Unmarshal(out, &result); err != nil {
				r.t.Fatalf("%s said %s: %v", program, out, err)
			}
		}
	}
	return result
}

// The real plugins set a pod up by the file: with an address of each family, default routes, the
// MTU, and ports of the node.
func TestTheRealPluginsTakeTheFile(t *testing.T) {
	bin := os.Getenv("CNI_PATH")
	if bin == "" {
		complete.Skip(t, "CNI_PATH names no folder with the CNI plugins; make cni builds them")
	}
	node, pod, outside := netns.New(t), netns.New(t), netns.New(t)
	netns.Link(node, "eth0", outside, "eth0")
	node.Run("ip", "address", "add", "198.51.100.1/24", "dev", "eth0")
	outside.Run("ip", "address", "add", "198.51.100.9/24", "dev", "eth0")
	node.Sysctl("net/ipv4/ip_forward", "1")
	node.Sysctl("net/ipv6/conf/all/forwarding", "1")

	root := t.TempDir()
	network := New(Options{ConfDir: filepath.Join(root, "net.d"), BinDirs: []string{bin}, StateDir: root})
	want := Desired{PodCIDRs: prefixes("10.244.1.0/24", "fd00:10:244:1::/64"), MTU: 1400}
	if _, _, err := network.Apply(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(root, "net.d", FileName))
	if err != nil {
		t.Fatal(err)
	}
	r := &runtime{t: t, node: node, bin: bin}
	if err := json.Unmarshal(content, &r.file); err != nil {
		t.Fatal(err)
	}
	r.call("ADD", "pod-1", pod)

	for _, check := range []struct{ args, says string }{
		{"-4 -o address show dev eth0", "10.244.1.2/24"},
		{"-6 -o address show dev eth0", "fd00:10:244:1::2/64"},
		{"-4 route show default", "via 10.244.1.1"},
		{"-6 route show default", "via fd00:10:244:1::1"},
		{"link show dev eth0", "mtu 1400"},
	} {
		if out := pod.Run("ip", strings.Fields(check.args)...); !strings.Contains(out, check.says) {
			t.Errorf("ip %s says %q, want %q", check.args, out, check.says)
		}
	}
	if links := node.Run("ip", "-o", "link"); !strings.Contains(links, ": veth") || !strings.Contains(links, "mtu 1400") {
		t.Errorf("the node's interfaces: %s", links)
	}
	reach(t, node, pod, "10.244.1.2:80")
	reach(t, node, pod, "[fd00:10:244:1::2]:80")
	reach(t, outside, pod, "198.51.100.1:8080")

	if got := names(t, filepath.Join(root, "cni", networkName)); len(got) < 3 {
		t.Errorf("host-local's state is %q", got)
	}
	if changed, err := network.Cleanup(t.Context()); err != nil || len(changed) != 2 {
		t.Errorf("cleanup under a pod: %q, %v", changed, err)
	}
	r.call("DEL", "pod-1", pod)
	if changed, err := network.Cleanup(t.Context()); err != nil || len(changed) != 1 || !slices.Equal(names(t, root), []string{"net.d"}) {
		t.Errorf("cleanup behind the last pod: %q, %v", changed, err)
	}
}

// reach connects to port 80 of the pod at an address.
func reach(t *testing.T, client, pod *netns.Space, address string) {
	t.Helper()
	var listener net.Listener
	var conn net.Conn
	var err error
	pod.Do(func() { listener, err = net.Listen("tcp", ":80") })
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client.Do(func() { conn, err = net.DialTimeout("tcp", address, 5*time.Second) })
	if err != nil {
		t.Errorf("the pod is not reached by %s: %v", address, err)
		return
	}
	conn.Close()
}
