package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/version"

	configuration "github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/measure"
	"github.com/underlay-ccm/underlay/internal/measure/project"
)

const measureLong = `Find out what no source tells about the cloud, in an empty project of yours: throw-away
servers, a network and a load balancer are made there, tried, and removed at the end,
also after Ctrl-C. What is found out is compared with what the simulator assumes, and
written into a profile with which it does the same as your cloud. What is printed is
Markdown, to be attached to an issue.

A project with anything in it is refused. Before anything is made it says what, and
asks. What is made costs what the cloud charges for it, and what couldn't be removed goes
on costing, so it says what that is. The token needs permission to write: $HCLOUD_TOKEN,
or the file of --token-file or $HCLOUD_TOKEN_FILE.

Exit codes: 0 all that was planned was found out, whatever was seen; 1 it was not, and the
last line says which, or something is left in the project.`

// terminal is what measure gets from its process.
type terminal struct {
	in       io.Reader
	out, err io.Writer
	asks     bool // somebody answers at in
	getenv   func(string) string
}

// say writes a line about what is being done.
func (t terminal) say(format string, args ...any) { fmt.Fprintf(t.err, format+"\n", args...) }

// measuring are the flags of measure.
type measuring struct {
	terminal

	location         string
	serverType       string
	image            string
	loadBalancerType string
	only, skip       []string
	apiOnly          bool
	endpoint         string
	tokenFile        string
	timeLimit        time.Duration
	profile          string
	dryRun, yes      bool
	dedicated        dedicatedFlags
}

const (
	// realEndpoint is that of the cloud.
	realEndpoint = "https://api.hetzner.cloud/v1"
	// lookTime is how long looking may take before anything is made.
	lookTime = time.Minute
	// cleaning is how long removing may take after the time limit.
	cleaning = 10 * time.Minute
)

func measureCommand(t terminal) *cobra.Command {
	m := &measuring{terminal: t}
	cmd := &cobra.Command{
		Use: "measure", Short: "Find out in a project of yours what no source tells about the cloud",
		Long: measureLong, Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "hcloud-sim measure"},
		RunE:              func(cmd *cobra.Command, _ []string) error { return m.measure(cmd.Context()) },
	}
	cmd.SetOut(t.out)
	cmd.SetErr(t.err)
	f := cmd.Flags()
	f.StringVar(&m.location, "location", "nbg1", "where everything is made")
	f.StringVar(&m.serverType, "server-type", "cx23", "type of the servers")
	f.StringVar(&m.image, "image", "debian-12", "image of the servers, with cloud-init and Python 3.9 or later")
	f.StringVar(&m.loadBalancerType, "load-balancer-type", "lb11", "type of the load balancers")
	f.StringSliceVar(&m.only, "only", nil, "find out these facts alone, of those of hcloud-sim measure facts; may be given again, or a list with commas")
	f.StringSliceVar(&m.skip, "skip", nil, "leave these facts out")
	f.BoolVar(&m.apiOnly, "api-only", false, "send no packets to servers: only what the API alone tells")
	f.DurationVar(&m.timeLimit, "time-limit", 30*time.Minute, "how long it may take before everything is removed")
	f.StringVar(&m.profile, "profile", "", "write the profile for hcloud-sim --profile into this file; if it exists, it is what the cloud is compared with, and what was not found out now stays in it")
	f.BoolVar(&m.dryRun, "dry-run", false, "say what would be made, and make nothing")
	m.dedicated.add(f)
	m.cloudFlags(f)
	cmd.AddCommand(factsCommand(t), m.cleanCommand(), programCommand(t))
	return cmd
}

// cloudFlags are those of commands that write in the cloud.
func (m *measuring) cloudFlags(f *pflag.FlagSet) {
	f.StringVar(&m.endpoint, "endpoint", "", "address of the cloud's API, such as http://127.0.0.1:8470/v1 of hcloud-sim; empty: $HCLOUD_ENDPOINT, then the real one")
	f.StringVar(&m.tokenFile, "token-file", "", "file with the project's token")
	m.dedicated.addRobot(f)
	f.BoolVarP(&m.yes, "yes", "y", false, "don't ask")
}

// check finds every mistake in the flags.
func (m *measuring) check() error {
	var errs []error
	if m.timeLimit < time.Minute || m.timeLimit > 6*time.Hour {
		errs = append(errs, fmt.Errorf("--time-limit %s: it must be between 1m and 6h", m.timeLimit))
	}
	return errors.Join(append(errs, m.dedicated.check(m.apiOnly))...)
}

// open finds endpoint and token, and opens the project.
func (m *measuring) open() (*project.Project, error) {
	m.endpoint = cmp.Or(m.endpoint, m.getenv("HCLOUD_ENDPOINT"), realEndpoint)
	base, err := url.Parse(m.endpoint)
	if err != nil || base.Host == "" || base.Scheme != "https" && base.Scheme != "http" || base.User != nil {
		return nil, fmt.Errorf("the endpoint is no URL such as %s", realEndpoint)
	}
	local := onLoopback(base.Hostname())
	if base.Scheme == "http" && !local {
		return nil, fmt.Errorf("--endpoint %s is asked without encryption, and the token would be read on "+
			"the way: write https, or an address of this machine", base.Host)
	}
	token, err := m.token(local)
	if err != nil {
		return nil, err
	}
	return project.New(project.Options{
		Token: token.Text, Endpoint: strings.TrimRight(m.endpoint, "/"),
		Version: release(), Progress: m.progress,
	}), nil
}

// token is that of the file of the flag, else of the variable, else of the file of its variable.
func (m *measuring) token(local bool) (configuration.Token, error) {
	text, file := m.getenv("HCLOUD_TOKEN"), m.getenv("HCLOUD_TOKEN_FILE")
	switch {
	case m.tokenFile != "":
		return configuration.TokenFile("--token-file", m.tokenFile).Read()
	case text == "" && file != "":
		return configuration.TokenFile("HCLOUD_TOKEN_FILE", file).Read()
	case text == "" && local:
		text = "none" // a simulator without a token takes any
	case text == "":
		return configuration.Token{}, errors.New("there is no token for the cloud: set HCLOUD_TOKEN, " +
			"or give --token-file, with permission to read and write")
	}
	return configuration.NewToken(text)
}

// progress says what is being done now.
func (m *measuring) progress(what string) { m.say("  %s", oneLine(what)) }

// onLoopback reports whether a host is this machine: a simulator.
func onLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// release is the program's version. One that was built without the release's flags has none.
func release() string {
	v := version.Get().GitVersion
	if strings.Contains(v, "$Format") {
		return "unreleased"
	}
	return v
}

func factsCommand(t terminal) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use: "facts", Args: cobra.NoArgs,
		Short: "What can be found out, what it takes, and what the simulator assumes",
		RunE: func(*cobra.Command, []string) error {
			known, err := readProfile(file)
			if err != nil {
				return err
			}
			assumed, err := measure.Completed(known)
			if err != nil {
				return err
			}
			rows := [][]string{{"fact", "question", "simulator", "takes"}}
			for _, f := range measure.Facts() {
				is := ""
				if f.Assumed != nil {
					is = f.Assumed(assumed)
				}
				rows = append(rows, []string{string(f.ID), f.Question, is, f.Needs.String()})
			}
			return writeColumns(t.out, rows)
		},
	}
	cmd.Flags().StringVar(&file, "profile", "", "show what hcloud-sim --profile assumes with this file")
	return cmd
}

// consent asks, unless --yes was given.
func (m *measuring) consent(ctx context.Context, question, remedy string) error {
	if m.yes {
		return nil
	}
	if !m.asks {
		return errors.New("nobody can be asked here: " + remedy)
	}
	fmt.Fprint(m.err, question+" [y/N] ")
	answer := make(chan string, 1)
	go func() {
		var line string
		_, _ = fmt.Fscanln(m.in, &line)
		answer <- strings.ToLower(line)
	}()
	select {
	case <-ctx.Done():
		return errors.New("nothing was done: it was interrupted")
	case a := <-answer:
		if a == "y" || a == "yes" {
			return nil
		}
	}
	return errors.New("nothing was done: the answer was not yes")
}
