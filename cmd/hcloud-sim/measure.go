package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/component-base/version"

	"github.com/underlay-ccm/underlay/hcloudsim/profile"
	configuration "github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/measure"
)

const measureLong = `Measure undocumented behavior of a real cloud in an empty project of yours, and write
the profile with which the simulator behaves the same. Two servers, a network, a load
balancer and a floating IP are created there and deleted at the end, also after Ctrl-C.
Your cloud charges for them.

Without --yes it lists the facts and the simulator's behavior, and sends no request.
With --yes it measures. A project that is not empty is rejected. The token needs
permission to write: $HCLOUD_TOKEN, or the file of --token-file or $HCLOUD_TOKEN_FILE.

The result is a Markdown table on standard output; progress is on standard error. The
exit code is 1 if a fact could not be measured or a resource remains in the project.`

type measuring struct {
	measure.Options

	out, err     io.Writer
	getenv       func(string) string
	only, skip   []string
	apiOnly, yes bool
	tokenFile    string
	profile      string
	timeLimit    time.Duration
}

const realEndpoint = "https://api.hetzner.cloud/v1"

func measureCommand(out, diagnostics io.Writer, getenv func(string) string) *cobra.Command {
	m := &measuring{out: out, err: diagnostics, getenv: getenv}
	m.Version = release()
	m.Progress = func(what string) { fmt.Fprintln(m.err, what) }
	cmd := &cobra.Command{
		Use: "measure", Short: "Measure undocumented behavior of a real cloud",
		Long: measureLong, Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: "hcloud-sim measure"},
		RunE:              func(cmd *cobra.Command, _ []string) error { return m.measure(cmd.Context()) },
	}
	cmd.SetOut(out)
	cmd.SetErr(diagnostics)
	f := cmd.Flags()
	f.BoolVarP(&m.yes, "yes", "y", false,
		"create the resources needed and measure; otherwise the facts are listed")
	f.StringVar(&m.Location, "location", "nbg1", "where everything is created")
	f.StringVar(&m.ServerType, "server-type", "cx23", "type of the servers")
	f.StringVar(&m.Image, "image", "debian-12",
		"image of the servers, with cloud-init and Python 3.9 or later")
	f.StringVar(&m.LoadBalancerType, "load-balancer-type", "lb11", "type of the load balancers")
	f.StringSliceVar(&m.only, "only", nil,
		"measure only these facts; may be repeated, or a list with commas")
	f.StringSliceVar(&m.skip, "skip", nil, "leave these facts out")
	f.BoolVar(&m.apiOnly, "api-only", false, "leave out facts that need packets of servers")
	f.DurationVar(&m.timeLimit, "time-limit", 30*time.Minute,
		"how long it may take before everything is deleted")
	f.StringVar(&m.profile, "profile", "",
		"file for the profile, for hcloud-sim --profile; if it exists, the cloud is "+
			"compared with it, and facts that are not measured now stay in it")
	m.cloudFlags(f)
	clean := &cobra.Command{
		Use: "clean", Short: "Delete the resources that killed runs of measure have left",
		Args: cobra.NoArgs,
		Long: "Delete everything in the project that has the label " + measure.Label + ".",
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := m.open()
			if err != nil {
				return err
			}
			return p.Sweep(cmd.Context())
		},
	}
	m.cloudFlags(clean.Flags())
	cmd.AddCommand(clean)
	return cmd
}

func (m *measuring) cloudFlags(f *pflag.FlagSet) {
	f.StringVar(&m.Endpoint, "endpoint", "",
		"address of the cloud's API, such as http://127.0.0.1:8470/v1 of hcloud-sim; empty: "+
			"$HCLOUD_ENDPOINT, then the real one")
	f.StringVar(&m.tokenFile, "token-file", "", "file with the project's token")
}

func (m *measuring) facts() (chosen []measure.Fact, err error) {
	all := measure.Facts()
	for _, id := range slices.Concat(m.only, m.skip) {
		if !slices.ContainsFunc(all, func(f measure.Fact) bool { return f.ID == id }) {
			return nil, fmt.Errorf("%q is no fact: hcloud-sim measure without --yes lists them", id)
		}
	}
	return slices.DeleteFunc(all, func(f measure.Fact) bool {
		return f.Packets && m.apiOnly || slices.Contains(m.skip, f.ID) ||
			len(m.only) > 0 && !slices.Contains(m.only, f.ID)
	}), nil
}

func (m *measuring) measure(ctx context.Context) error {
	facts, err := m.facts()
	if err != nil {
		return err
	}
	before, err := readProfile(m.profile)
	if err != nil {
		return fmt.Errorf("--profile %s: %w", m.profile, err)
	}
	if before.Location != "" && before.Location != m.Location {
		return fmt.Errorf("--profile %s was measured in location %s: choose another file, or that "+
			"--location", m.profile, before.Location)
	}
	if !m.yes {
		return m.list(facts, before)
	}
	p, err := m.open()
	if err != nil {
		return err
	}
	if err := p.Empty(ctx); err != nil {
		return err
	}
	return m.run(ctx, p, facts, before)
}

func (m *measuring) list(facts []measure.Fact, before profile.Profile) error {
	assumed, err := measure.Complete(before)
	if err != nil {
		return err
	}
	rows := [][]string{{"fact", "question", "simulator"}}
	for _, f := range facts {
		rows = append(rows, []string{f.ID, f.Question, f.Words(assumed)})
	}
	return m.table(rows)
}

// run measures, writes the profile after each fact, and deletes all created resources.
func (m *measuring) run(
	ctx context.Context, p *measure.Project, facts []measure.Fact, before profile.Profile,
) (err error) {
	signal.Ignore(syscall.SIGPIPE) // a closed pipe must not prevent the cleanup
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithTimeoutCause(ctx, m.timeLimit,
		fmt.Errorf("the time limit of %s is over", m.timeLimit))
	defer cancel()
	defer func() { err = errors.Join(err, p.Sweep(context.WithoutCancel(ctx))) }()
	before.Measured, before.Location = time.Now().UTC().Truncate(time.Second), m.Location
	before.Endpoint, before.With = host(m.Endpoint), m.Version
	rows := [][]string{{"fact", "simulator", "seen", "verdict"}}
	var missing []error
	err = p.Measure(ctx, facts, before, func(r measure.Row, now profile.Profile) error {
		result := cmp.Or(r.Seen, r.Verdict())
		fmt.Fprintf(m.err, "%d/%d %s: %s\n", len(rows), len(facts), r.Fact.ID, result)
		rows = append(rows, []string{r.Fact.ID, r.Assumed, r.Seen, r.Verdict()})
		if r.Err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", r.Fact.ID, r.Err))
		}
		return writeProfile(m.profile, now)
	})
	return errors.Join(m.table(rows), errors.Join(missing...), err)
}

func (m *measuring) table(rows [][]string) error {
	w := tabwriter.NewWriter(m.out, 0, 0, 1, ' ', 0)
	for n, row := range rows {
		for _, cell := range row {
			fmt.Fprintf(w, "| %s\t", cell)
		}
		fmt.Fprintln(w, "|")
		if n == 0 {
			fmt.Fprintln(w, strings.Repeat("|---\t", len(row))+"|")
		}
	}
	return w.Flush()
}

func (m *measuring) open() (*measure.Project, error) {
	m.Endpoint = strings.TrimRight(cmp.Or(m.Endpoint, m.getenv("HCLOUD_ENDPOINT"), realEndpoint), "/")
	base, err := url.Parse(m.Endpoint)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("the endpoint is no URL such as %s", realEndpoint)
	}
	ip, _ := netip.ParseAddr(base.Hostname())
	local := base.Hostname() == "localhost" || ip.IsLoopback()
	if base.Scheme != "https" && !local {
		return nil, fmt.Errorf("the endpoint %s would receive the token without encryption: use https, "+
			"or an address of this machine", base.Host)
	}
	token, err := m.token(local)
	if err != nil {
		return nil, err
	}
	m.Token = token.Text
	return measure.New(m.Options), nil
}

// token returns the token from the flag's file, the environment variable, or the file named by
// the environment, in this order.
func (m *measuring) token(local bool) (configuration.Token, error) {
	text, file := m.getenv("HCLOUD_TOKEN"), m.getenv("HCLOUD_TOKEN_FILE")
	switch {
	case m.tokenFile != "":
		return configuration.TokenFile("--token-file", m.tokenFile).Read()
	case text == "" && file != "":
		return configuration.TokenFile("HCLOUD_TOKEN_FILE", file).Read()
	case text == "" && local:
		text = "none" // a simulator without a token accepts any token
	case text == "":
		return configuration.Token{}, errors.New("there is no token for the cloud: set HCLOUD_TOKEN, " +
			"or give --token-file, with permission to read and write")
	}
	return configuration.NewToken(text)
}

func host(endpoint string) string {
	base, err := url.Parse(endpoint)
	if err != nil {
		return ""
	}
	return base.Host
}

// release returns the program's version, or "unreleased" if built without release flags.
func release() string {
	v := version.Get().GitVersion
	if strings.Contains(v, "$Format") {
		return "unreleased"
	}
	return v
}

// readProfile returns an empty profile if the name is empty or the file does not exist.
func readProfile(name string) (profile.Profile, error) {
	if name == "" {
		return profile.Profile{}, nil
	}
	content, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return profile.Profile{}, nil
	}
	if err != nil {
		return profile.Profile{}, err
	}
	return profile.Read(bytes.NewReader(content))
}

func writeProfile(name string, p profile.Profile) error {
	if name == "" {
		return nil
	}
	var text bytes.Buffer
	if err := profile.Write(&text, p); err != nil {
		return err
	}
	return os.WriteFile(name, text.Bytes(), 0o644)
}
