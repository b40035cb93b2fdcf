package clients_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/test/testenv/complete"
)

const rules = `[{"direction": "in", "protocol": "tcp", "port": "80-85", "source_ips": ["0.0.0.0/0", "::/0"]}]`

const publicKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f me"

// TestHcloud runs the commands of testdata/hcloud.txt.
func TestHcloud(t *testing.T) {
	program, err := exec.LookPath("hcloud")
	if err != nil {
		complete.Skip(t, "hcloud is not installed: Debian has it as hcloud-cli")
	}
	sim := hcloudsim.New(hcloudsim.Options{Token: "token", ActionTime: time.Millisecond})
	server := httptest.NewServer(sim)
	defer server.Close()
	h := hcloud{t: t, program: program, endpoint: server.URL + "/v1", sim: sim, dir: t.TempDir()}
	for name, content := range map[string]string{"rules.json": rules, "key.pub": publicKey} {
		if err := os.WriteFile(filepath.Join(h.dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := sim.CreatePrimaryIP(hcloudsim.PrimaryIPSeed{Name: "four"}); err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("testdata/hcloud.txt")
	if err != nil {
		t.Fatal(err)
	}
	ran := map[string]bool{}
	for number, line := range strings.Split(string(script), "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		ran[h.line(fmt.Sprintf("testdata/hcloud.txt:%d", number+1), line)] = true
	}
	h.count(ran)
}

type hcloud struct {
	t                      *testing.T
	program, endpoint, dir string
	sim                    *hcloudsim.Simulator
}

// line runs a line of the script. It returns the command, such as "server create", if it succeeded.
func (h hcloud) line(at, line string) string {
	h.t.Helper()
	line, refused := strings.CutPrefix(line, "! ")
	command, want, _ := strings.Cut(line, " => ")
	args := strings.Fields(h.replacements().Replace(command))
	out, err := h.run(args...)
	if (err != nil) != refused || !strings.Contains(out, want) {
		h.t.Errorf("%s: hcloud %s: %v, want refused=%v and the text %q:\n%s", at, command, err, refused, want, out)
	}
	if err != nil {
		return ""
	}
	return args[0] + " " + args[1]
}

func (h hcloud) run(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.program, append(args, "--poll-interval=2ms")...)
	cmd.Env = []string{
		"HCLOUD_ENDPOINT=" + h.endpoint, "HCLOUD_TOKEN=token", "HOME=" + h.dir, "PATH=" + os.Getenv("PATH"),
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// replacements are for values that the commands can't contain.
func (h hcloud) replacements() *strings.Replacer {
	var state struct {
		PrimaryIPs []schema.PrimaryIP `json:"primary_ips"`
		Images     []schema.Image     `json:"images"`
	}
	if err := json.Unmarshal(h.sim.Snapshot(), &state); err != nil {
		h.t.Fatal(err)
	}
	pairs := []string{"{dir}", h.dir}
	for _, k := range state.PrimaryIPs {
		pairs = append(pairs, "{"+k.Name+".ip}", k.IP)
	}
	for _, i := range state.Images {
		pairs = append(pairs, "{"+i.Description+"}", fmt.Sprint(i.ID))
	}
	return strings.NewReplacer(pairs...)
}

// count logs how many commands of the installed version work.
func (h hcloud) count(ran map[string]bool) {
	var all, missing []string
	for _, group := range h.commands() {
		// They are not about the cloud.
		if slices.Contains([]string{"completion", "context", "help", "version"}, group) {
			continue
		}
		for _, name := range h.commands(group) {
			all = append(all, group+" "+name)
			if !ran[group+" "+name] {
				missing = append(missing, group+" "+name)
			}
		}
	}
	h.t.Logf("%d of the %d commands of %s work, not tried or refused: %s", len(all)-len(missing), len(all), h.program, strings.Join(missing, ", "))
}

// commands lists the commands below another one, as its help does.
func (h hcloud) commands(above ...string) (names []string) {
	out, err := h.run(append(above, "--help")...)
	if err != nil {
		h.t.Fatalf("help of %v: %v: %s", above, err, out)
	}
	_, list, _ := strings.Cut(out, "Available Commands:\n")
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.SplitSeq(list, "\n") {
		if fields := strings.Fields(line); len(fields) > 0 {
			names = append(names, fields[0])
		}
	}
	return names
}
