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

// userDataPath is the path at which cloud-init stores a script.
const userDataPath = "/var/lib/cloud/instance/scripts/part-001"

// boot copies the file $1 to $2 and runs it there, as the first process of its own PID namespace.
// It keeps running after the file has ended, so that background processes of the file continue
// until boot is killed.
const boot = `mount -t sysfs sysfs /sys && mount -t tmpfs run /run && mount -t tmpfs lib /var/lib &&
	mkdir -p "${2%/*}" && cp "$1" "$2" && chmod 0700 "$2" && mount -t tmpfs tmp /tmp && cd / || exit
"$2"
echo "$2: ended with status $?"
exec sleep infinity
`

// isScript reports whether cloud-init would execute the user data directly.
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

// runUserData runs a server's user data if it has not run yet.
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

// UserDataLog returns the path of the output of a server's user data. The file is created when it
// runs.
func (l *CloudLab) UserDataLog(server int64) string {
	return filepath.Join(l.options.Dir, userDataName(server)+".log")
}
