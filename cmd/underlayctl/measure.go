package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	"github.com/underlay-ccm/underlay/internal/measure"
)

const measureLong = `Find out what no source tells about the cloud, in a project of yours: throw-away
servers, a network and a load balancer are made there, tried, and removed at the end,
also after Ctrl-C. What is found out is compared with what hcloud-sim assumes, and
written into a profile with which it does the same as your cloud.

Before anything is made it says what, and what that costs at most, and asks. Facts that
would take more than --max-cost are left out. It can keep to that only on a machine that
stays awake and online, and if everything can be removed: what is left goes on costing,
so it says what that is. Of what the project has already nothing is changed or removed.
The token needs permission to write; a project of its own is best.

It writes in the cloud, and in no cluster.

Exit codes: 0 all that was planned was found out, whatever was seen; 3 it was not, and the
last line says which, or something is left in the project.`

// measuring are the flags of measure.
type measuring struct {
	maxCost          string
	location         string
	serverType       string
	image            string
	loadBalancerType string
	only, skip       []string
	apiOnly          bool
	endpoint         string
	timeLimit        time.Duration
	profile, report  string
	dryRun, yes      bool
	run              string // of clean

	dedicated dedicatedFlags

	// What check makes of them.
	onlyFacts, skipFacts []measure.FactID
	ceiling              measure.Money
}

// cleaning is how long removing may take after the time limit. The bill counts it.
const cleaning = 10 * time.Minute

func measureCommand(w process, o *options) *cobra.Command {
	m := &measuring{}
	cmd := &cobra.Command{
		Use: "measure", Short: "Find out in a project of yours what no source tells about the cloud, and let hcloud-sim do the same", Long: measureLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return m.measure(cmd.Context(), w, o) },
	}
	f := cmd.Flags()
	f.StringVar(&m.maxCost, "max-cost", "0.50", "What everything may cost at most, gross, in the currency of the project's prices. What costs more is left out.")
	f.StringVar(&m.location, "location", "nbg1", "Where everything is made.")
	f.StringVar(&m.serverType, "server-type", "", "Type of the servers. Default: the cheapest of x86 that is on offer there.")
	f.StringVar(&m.image, "image", "debian-12", "Image of the servers, with cloud-init and Python 3.9 or later.")
	f.StringVar(&m.loadBalancerType, "load-balancer-type", "lb11", "Type of the load balancer.")
	f.StringSliceVar(&m.only, "only", nil, "Find out these facts alone, of those of underlayctl measure facts. Can be repeated, or a list with commas.")
	f.StringSliceVar(&m.skip, "skip", nil, "Leave these facts out.")
	f.BoolVar(&m.apiOnly, "api-only", false, "Send no packets to servers: only what the API alone tells.")
	f.DurationVar(&m.timeLimit, "time-limit", 30*time.Minute, "How long it may take before everything is removed.")
	f.StringVar(&m.profile, "profile", "", "Write the profile for hcloud-sim --profile into this file. If it exists, it is what the cloud is compared with, and what was not found out now stays in it.")
	f.StringVar(&m.report, "report", "", "Write a report in Markdown into this file, to be attached to an issue: it holds no secret, public address or ID.")
	f.BoolVar(&m.dryRun, "dry-run", false, "Say what would be made and what it costs, and make nothing.")
	m.dedicated.add(f)
	m.cloudFlags(f)
	_ = cmd.RegisterFlagCompletionFunc("only", completeFacts)
	_ = cmd.RegisterFlagCompletionFunc("skip", completeFacts)
	_ = cmd.RegisterFlagCompletionFunc("location", m.completeFromCloud(w, o, locations))
	hideClusterFlags(cmd)
	cmd.AddCommand(m.factsCommand(w, o), m.cleanCommand(w, o), measureProgramCommand(w, o))
	return cmd
}

// cloudFlags are those of commands that write in the cloud.
func (m *measuring) cloudFlags(f *pflag.FlagSet) {
	f.StringVar(&m.endpoint, "endpoint", "", "Address of the cloud's API, such as http://127.0.0.1:8470/v1 of hcloud-sim. Default: $HCLOUD_ENDPOINT, then the real one.")
	m.dedicated.addRobot(f)
	f.BoolVarP(&m.yes, "yes", "y", false, "Don't ask.")
}

// check finds every mistake in the flags.
func (m *measuring) check() error {
	var errs []error
	var err error
	if m.ceiling, err = measure.ParseMoney(m.maxCost); err != nil {
		errs = append(errs, fmt.Errorf("--max-cost: %w", err))
	}
	if m.timeLimit < time.Minute || m.timeLimit > longestLimit {
		errs = append(errs, fmt.Errorf("--time-limit %s: it must be between 1m and 6h", m.timeLimit))
	}
	for _, given := range []struct{ flag, value string }{
		{"location", m.location}, {"image", m.image}, {"load-balancer-type", m.loadBalancerType},
	} {
		if given.value == "" {
			errs = append(errs, fmt.Errorf("--%s is empty: leave it out for the default", given.flag))
		}
	}
	if m.onlyFacts, err = chosen("only", m.only); err == nil && m.only != nil && len(m.onlyFacts) == 0 {
		err = errors.New("--only names no fact: name one of underlayctl measure facts, or leave it out for all")
	}
	errs = append(errs, err)
	m.skipFacts, err = chosen("skip", m.skip)
	errs = append(errs, err, m.dedicated.check(m.apiOnly))
	return errors.Join(errs...)
}

// wanted is what the plan is made for.
func (m *measuring) wanted(withRobot bool) measure.Wanted {
	w := measure.Wanted{
		Only: m.onlyFacts, Skip: m.skipFacts, Ceiling: m.ceiling, TimeLimit: m.timeLimit, Cleaning: cleaning,
		ServerType: m.serverType, LoadBalancerType: m.loadBalancerType, Inside: !m.apiOnly,
	}
	m.dedicated.wanted(&w, withRobot)
	return w
}

// factView is a row of measure facts.
type factView struct {
	Fact     measure.FactID `json:"fact"`
	Question string         `json:"question"`
	Takes    string         `json:"takes"`
	Assumed  string         `json:"assumed,omitempty"`
}

func (m *measuring) factsCommand(w process, o *options) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "facts", Short: "What can be found out, what it takes, and what hcloud-sim assumes", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if err := o.check(); err != nil {
				return err
			}
			assumed := profile.Default()
			if file != "" {
				p, err := readProfile(w, file)
				if err != nil {
					return err
				}
				if assumed, err = measure.Completed(p); err != nil {
					return err
				}
			}
			var view []factView
			for _, f := range measure.Facts() {
				v := factView{Fact: f.ID, Question: f.Question, Takes: f.Needs.String()}
				if f.Assumed != nil {
					v.Assumed = f.Assumed(assumed)
				}
				view = append(view, v)
			}
			return o.print(w, view, func() page { return factsPage(view) })
		},
	}
	cmd.Flags().StringVar(&file, "profile", "", "Show what hcloud-sim --profile assumes with this file.")
	return cmd
}
