// Package measured says which cloud the simulated ones of whole-cluster tests behave as: the one
// whose profile the environment variable UNDERLAY_PROFILE names, as "hcloud-sim measure" has
// written it. Without the variable nothing was measured, and everything is as the simulators have it.
//
// What a test sets itself outranks the profile, so that it goes on testing what it is about. Times
// are the exception: ActionTime and Latency are how a test's cloud has any, so measured ones outrank
// them. A test that is about its own times says so with ActionTimes.
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

// Profile is what was measured; nothing, if the variable is not set.
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

// Cloud is the cloud of a test, with what was measured: all that the test leaves zero, and the times,
// unless it sets ActionTimes.
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
	options.ActionTimes = times.ActionTimes // of other commands, ActionTime is still the time
	if p.Cloud.LatencySeconds != nil {
		options.Latency = times.Latency
	}
	return options, nil
}
