package inside_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/underlay-ccm/underlay/internal/measure/inside"
	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// TestCloudInitGoesOn: cloud-init waits for a script that it runs, and the boot for cloud-init. The
// program ends neither with the script nor with the script's outputs.
func TestCloudInitGoesOn(t *testing.T) {
	space, c, dir := netns.New(t), newCredentials(t, "a"), t.TempDir()
	script := filepath.Join(dir, "user-data")
	must(t, os.WriteFile(script, []byte(inside.UserData(c, 30*time.Second)), 0o600))
	// Its own folders of the system, in a namespace for mounts.
	run, err := process.Start(process.Command{
		Name: "cloud-init", Path: "nsenter", Dir: dir,
		Args: []string{"--net=" + space.Path(), "--", "unshare", "--mount", "sh", "-euc", `
			mount -t tmpfs none /run
			mount -t tmpfs none /var/lib
			mkdir -p /var/lib/cloud/instance/scripts
			cp "$1" /var/lib/cloud/instance/scripts/part-001
			chmod 700 /var/lib/cloud/instance/scripts/part-001
			exec /var/lib/cloud/instance/scripts/part-001`, "sh", script},
		Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"},
	})
	must(t, err)
	defer run.Kill()
	select {
	case <-run.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the script doesn't end")
	}
	if code := run.ExitCode(); code != 0 {
		text, _ := os.ReadFile(run.Log)
		t.Fatalf("exit code %d:\n%s", code, text)
	}
	client := inside.New(c, loopback, dialer(space))
	defer client.Close()
	must(t, client.Ready(t.Context()))
	if _, err := client.Interfaces(t.Context()); err != nil {
		t.Error(err)
	}
	must(t, client.Stop(t.Context()))
}
