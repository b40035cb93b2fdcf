// Package measured determines the behavior of the simulated clouds of whole-cluster tests: that of
// the profile which the environment variable UNDERLAY_PROFILE names, as written by "hcloud-sim
// measure". Without the variable nothing was measured, and the simulators' defaults apply.
//
// Options that a test sets override the profile, so that the test keeps its subject. Times are the
// exception: a test sets ActionTime and Latency only because it needs some, so measured ones
// override them. A test about specific times sets ActionTimes.
package measured

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/underlay-ccm/underlay/hcloudsim"
	"github.com/underlay-ccm/underlay/hcloudsim/profile"
)

// Variable names the file: by an absolute path, because each test runs in its package's folder.
const Variable = "UNDERLAY_PROFILE"

// Profile returns the measured profile; the zero value if the variable is not set.
func Profile() (profile.Profile, error) {
	file := os.Getenv(Variable)
	switch {
	case file == "":
		return profile.Profile{}, nil
	case !filepath.IsAbs(file):
		return profile.Profile{}, fmt.Errorf("%s=%s: must be an absolute path, because tests run in their packages' folders", Variable, file)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return profile.Profile{}, fmt.Errorf("%s: %w", Variable, err)
	}
	p, err := profile.Read(bytes.NewReader(content))
	if err != nil {
		return profile.Profile{}, fmt.Errorf("%s=%s: %w", Variable, file, err)
	}
	return p, nil
}

// Cloud returns the options of a test's cloud with measured values: those that the test leaves
// zero, and the times, unless it sets ActionTimes.
func Cloud(own hcloudsim.Options) (hcloudsim.Options, error) {
	p, err := Profile()
	if err != nil {
		return own, err
	}
	options := own.With(p.Cloud)
	if own.ActionTimes != nil {
		return options, nil
	}
	times := hcloudsim.Options{}.With(p.Cloud)
	options.ActionTimes = times.ActionTimes // ActionTime still applies to other commands
	if p.Cloud.LatencySeconds != nil {
		options.Latency = times.Latency
	}
	return options, nil
}
