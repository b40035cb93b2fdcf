//go:build linux

package netlab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/underlay-ccm/underlay/test/testenv/netns"
	"github.com/underlay-ccm/underlay/test/testenv/process"
)

// userDataPath is where cloud-init has a script.
const userDataPath = "/var/lib/cloud/instance/scripts/part-001"

// boot copies the file $1 to $2 and runs it there, as the first process among those with IDs of their
// own. It stays when the file has ended: what that has started in the background goes on, until this
// one is killed.
const boot = `mount -t sysfs sysfs /sys && mount -t tmpfs run /run && mount -t tmpfs lib /var/lib &&
	mkdir -p "${2%/*}" && cp "$1" "$2" && chmod 0700 "$2" && mount -t tmpfs tmp /tmp && cd / || exit
"$2"
echo "$2: ended with status $?"
exec sleep infinity
`

// isScript reports whether user data is what cloud-init runs as it is.
func isScript(userData string) bool { return strings.HasPrefix(userData, "#!") }

// runScript runs a script in a namespace. Its output is in name.log in dir.
func runScript(ns *netns.Namespace, dir, name, script string) (*process.Process, error) {
	file := filepath.Join(dir, name)
	if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
		return nil, err
	}
	p, err := process.Start(process.Command{
		Name: name, Path: "nsenter", Dir: dir,
		Args: []string{
			"--net=" + ns.Path(), "--",
			"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--",
			"sh", "-c", boot, "boot", file, userDataPath,
		},
		Env: []string{"HOME=/root", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
	})
	if err != nil {
		return nil, fmt.Errorf("running a script: %w", err)
	}
	return p, nil
}

// runUserData runs a server's user data if it has not been.
func (l *CloudLab) runUserData(s *cloudServer) (err error) {
	if s.ran {
		return nil
	}
	s.ran = true
	if script, _ := l.Cloud.UserData(s.id); isScript(script) {
		s.userData, err = runScript(s.ns, l.options.Dir, userDataName(s.id), script)
	}
	return err
}

func userDataName(server int64) string { return fmt.Sprintf("server-%d-user-data", server) }

// UserDataLog is the path of what a server's user data has printed; there is no file before it runs.
func (l *CloudLab) UserDataLog(server int64) string {
	return filepath.Join(l.options.Dir, userDataName(server)+".log")
}
