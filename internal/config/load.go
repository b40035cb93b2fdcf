package config

import (
	"fmt"
	"time"
)

// Flags are the command-line values that bear on Underlay's own settings, as
// given. Empty or zero: not given. The two booleans always count as given;
// upstream's defaults are false and true.
type Flags struct {
	CloudProvider string
	// CloudConfig is the path of the file.
	CloudConfig                             string
	AllocateNodeCIDRs, ConfigureCloudRoutes bool
	CIDRAllocatorType                       string
	ClusterCIDR, ServiceClusterIPRange      string // comma-separated
	NodeCIDRMaskSize                        int
	NodeCIDRMaskSizeIPv4                    int
	NodeCIDRMaskSizeIPv6                    int
	ClusterName                             string
	RouteReconciliationPeriod               time.Duration
	// RouteReconciliationPeriodGiven: a period of zero was asked for too.
	RouteReconciliationPeriodGiven bool
}

// Load combines flags, file and environment. The file is the content of the
// one named by --cloud-config; nil: it is read through readFile, if a name is
// given at all. Its error is Errors, with everything that is wrong; warnings
// are valid either way.
func Load(flags Flags, file []byte, getenv func(string) string, readFile func(string) ([]byte, error)) (Config, []Warning, error) {
	var d draft
	r := newResolver(&d, flags, getenv)
	r.loadFile(file, readFile)
	r.resolve()
	r.foreignVariables()
	config := r.validate(&d, readFile)
	if len(r.problems) > 0 {
		r.problems.sort()
		return Config{}, r.warnings, r.problems
	}
	return config, r.warnings, nil
}

func newResolver(d *draft, flags Flags, getenv func(string) string) *resolver {
	return &resolver{
		flags: flags, fileFlag: "--cloud-config", getenv: getenv,
		file: decoded{rows: reference(d)}, lists: lists(d), origins: map[string]given{},
	}
}

func (r *resolver) loadFile(content []byte, readFile func(string) ([]byte, error)) {
	if content == nil && r.flags.CloudConfig == "" {
		return
	}
	if content == nil {
		read, err := readFile(r.flags.CloudConfig)
		if err != nil {
			r.problems = append(r.problems, &Error{
				Field:   r.fileFlag,
				Value:   r.flags.CloudConfig,
				Problem: fmt.Sprintf("the file can't be read: %v", err),
				Remedy:  "name a file that exists and that this process may read",
				Cause:   err,
			})
			r.unread = true
			return
		}
		content = read
	}
	r.file, r.problems = decodeFile(content, r.file.rows, r.lists)
	for _, problem := range r.problems {
		if problem.Field == "" {
			problem.Field, problem.Value, r.unread = r.fileFlag, r.flags.CloudConfig, true
		}
	}
}
