//go:build linux

package netlab

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// complete fills in the defaults and returns an error for options that cannot work.
func (o Options) complete() (Options, error) {
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	o.VSwitch = o.VSwitch || len(o.Dedicated) > 0
	if o.VSwitch && (o.Metal || o.MachinesOnly || o.IPv4Only) {
		return o, errors.New("VSwitch, Dedicated: there is one only beside a cloud, in a cluster of both families")
	}
	if o.MachinesOnly {
		if len(o.Machines) > 0 {
			return o, errors.New("MachinesOnly: there is nobody whom machines could join")
		}
		return o, absolute(map[string]string{"Dir": o.Dir})
	}
	if o.Plugins == "" {
		o.Plugins = os.Getenv("CNI_PATH")
	}
	if o.Plugins == "" {
		return o, errors.New("no folder with the CNI plugins: set CNI_PATH, or run it by make")
	}
	return o, absolute(map[string]string{"Dir": o.Dir, "Manager": o.Manager, "Agent": o.Agent, "Plugins": o.Plugins})
}

func absolute(paths map[string]string) error {
	for what, path := range paths {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%s %q: give an absolute path", what, path)
		}
	}
	return nil
}
