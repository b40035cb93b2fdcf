package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/version"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/hetzner"
	"github.com/underlay-ccm/underlay/internal/kube"
	"github.com/underlay-ccm/underlay/internal/requests"
	"github.com/underlay-ccm/underlay/internal/survey"
)

// process is the environment of the program.
type process struct {
	name     string // base name of the executable
	args     []string
	getenv   func(string) string
	readFile func(string) ([]byte, error)
	stdout   io.Writer
	stderr   io.Writer
	terminal bool // reports whether stdout is a terminal
}

// options holds the flags of all commands.
type options struct {
	kubeconfig, context    string
	namespace              string
	cloudConfig            string
	tokenFile, tokenSecret string
	managerFlags           []string
	output                 string
	timeout                time.Duration
}

const (
	// usualNamespace and usualSecret are those of deploy/.
	usualNamespace = "kube-system"
	usualSecret    = usualNamespace + "/hcloud/token"
)

func (o *options) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.kubeconfig, "kubeconfig", "",
		"Path of the kubeconfig. Default: $KUBECONFIG, then ~/.kube/config.")
	fs.StringVar(&o.context, "context", "", "Context of the kubeconfig. Default: its current one.")
	fs.StringVarP(&o.namespace, "namespace", "n", usualNamespace,
		"Namespace in which underlay-ccm and underlay-agent are installed.")
	fs.StringVar(&o.cloudConfig, "cloud-config", "", "The configuration file of underlay-ccm. Default: the ConfigMap that its Deployment mounts, which is underlay-config.")
	fs.StringArrayVar(&o.managerFlags, "manager-flag", nil, "A flag of underlay-ccm, such as --manager-flag=--cluster-cidr=10.244.0.0/16, if it has no Deployment; overrides the Deployment's. Can be repeated.")
	fs.StringVar(&o.tokenFile, "token-file", "", "File with an API token of the cloud project; read permission is enough. Default: $HCLOUD_TOKEN, then the file $HCLOUD_TOKEN_FILE.")
	fs.StringVar(&o.tokenSecret, "token-secret", "",
		"Read the token from a Secret of the cluster, namespace/name/key. Without a value: "+usualSecret+
			".")
	fs.Lookup("token-secret").NoOptDefVal = usualSecret
	fs.StringVarP(&o.output, "output", "o", "table", "table, wide, json or yaml.")
	fs.DurationVar(&o.timeout, "timeout", time.Minute,
		"How long to wait for the API server and the cloud together.")
}

func (o *options) check() error {
	switch o.output {
	case "table", "wide", "json", "yaml":
	default:
		return fmt.Errorf("--output %q is none of table, wide, json, yaml", o.output)
	}
	if o.namespace == "" {
		return fmt.Errorf("--namespace is empty: name the one in which underlay-ccm is installed, or leave the flag out for %s", usualNamespace)
	}
	if o.tokenFile != "" && o.tokenSecret != "" {
		return errors.New("--token-file and --token-secret exclude each other: give one")
	}
	fs := survey.ManagerFlags()
	if err := fs.Parse(o.managerFlags); err != nil {
		return fmt.Errorf("--manager-flag: %w: give one of %s", err, strings.Join(managerFlagNames(fs),
			", "))
	}
	if fs.NArg() > 0 {
		return fmt.Errorf("--manager-flag %q is no flag: write it with its dashes and its value, as in --manager-flag=--cluster-cidr=10.244.0.0/16", fs.Arg(0))
	}
	return nil
}

func managerFlagNames(fs *pflag.FlagSet) []string {
	var names []string
	fs.VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return names
}

func (o *options) look(ctx context.Context, w process, want survey.Want) (*survey.Snapshot, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	ctx, cancel := o.patience(ctx)
	defer cancel()
	from, err := o.sources(ctx, w, want.Parts)
	if err != nil {
		return nil, err
	}
	return survey.Collect(ctx, from, want)
}

func (o *options) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	late := fmt.Errorf("no response within %s: raise --timeout, or find out why the API server or the cloud is slow", o.timeout)
	return context.WithTimeoutCause(ctx, o.timeout, late)
}

func (o *options) sources(
	ctx context.Context, w process, parts survey.Parts,
) (survey.Sources, error) {
	client, err := o.client()
	if err != nil {
		return survey.Sources{}, err
	}
	from := survey.Sources{
		Client: client, Namespace: o.namespace,
		Configuration: survey.Configuration{Flags: o.managerFlags},
	}
	if o.cloudConfig != "" {
		if from.Configuration.File, err = w.readFile(o.cloudConfig); err != nil {
			return survey.Sources{}, fmt.Errorf("--cloud-config: %w: name a file that exists, or leave the flag out to read the cluster's ConfigMap", err)
		}
		from.Configuration.FileName = o.cloudConfig
	}
	if parts&survey.Cloud != 0 {
		token, missing, err := o.token(ctx, w, client)
		if err != nil {
			return survey.Sources{}, err
		}
		from.NoCloud = missing
		if missing == "" {
			from.Cloud = cloudClient(token)
		}
	}
	return from, nil
}

// client returns a client for the API server that only reads.
func (o *options) client() (kubernetes.Interface, error) {
	return o.clientThrough(func(next http.RoundTripper) http.RoundTripper { return readOnly{next} })
}

func (o *options) kubeconfigs() *clientcmd.ClientConfigLoadingRules {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	rules.WarnIfAllMissing = false
	return rules
}

func (o *options) clientThrough(
	gate func(http.RoundTripper) http.RoundTripper,
) (kubernetes.Interface, error) {
	overrides := &clientcmd.ConfigOverrides{CurrentContext: o.context}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(o.kubeconfigs(),
		overrides).ClientConfig()
	switch {
	case clientcmd.IsEmptyConfig(err):
		return nil, errors.New("there is no kubeconfig: name one with --kubeconfig or KUBECONFIG")
	case err != nil:
		return nil, fmt.Errorf("the kubeconfig can't be used: %w: correct it, or choose others with --kubeconfig and --context", err)
	}
	cfg.UserAgent = rest.DefaultKubernetesUserAgent()
	cfg.QPS, cfg.Burst = 50, 100
	cfg.WarningHandler = rest.NoWarnings{}
	cfg.Wrap(kube.WithDeadline)
	cfg.Wrap(gate)
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("the kubeconfig can't be used: %w", err)
	}
	return client, nil
}

// token returns the cloud's token, or the human-readable reason why there is none.
func (o *options) token(
	ctx context.Context, w process, client kubernetes.Interface,
) (token config.Token, missing string, err error) {
	const remedy = "put in an API token of the cluster's project, alone; read permission is enough"
	file := o.tokenFile
	if file == "" && w.getenv("HCLOUD_TOKEN") == "" {
		file = w.getenv("HCLOUD_TOKEN_FILE")
	}
	var text, where string
	switch {
	case o.tokenSecret != "":
		where = "the Secret " + o.tokenSecret
		text, err = secretToken(ctx, client, o.tokenSecret)
	case file != "":
		var content []byte
		where = "the token file " + file
		if content, err = w.readFile(file); err != nil {
			err = fmt.Errorf("%s can't be read: %w", where, err)
		}
		text = string(content)
	case w.getenv("HCLOUD_TOKEN") != "":
		where, text = "HCLOUD_TOKEN", w.getenv("HCLOUD_TOKEN")
	default:
		return config.Token{}, "there is no token for the cloud: set HCLOUD_TOKEN, or give --token-file, or --token-secret to use the cluster's own; read permission is enough", nil
	}
	if err != nil {
		return config.Token{}, "", err
	}
	if token, err = config.NewToken(text); err != nil {
		return config.Token{}, "", fmt.Errorf("%s holds no token that can be used: %s", where, remedy)
	}
	return token, "", nil
}

func secretToken(ctx context.Context, client kubernetes.Interface, name string) (string, error) {
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return "",
			fmt.Errorf("--token-secret %q: write namespace/name/key, such as %s", name, usualSecret)
	}
	var secret *corev1.Secret
	secret, err := client.CoreV1().Secrets(parts[0]).Get(ctx, parts[1], metav1.GetOptions{})
	switch {
	case apierrors.IsForbidden(err):
		return "", fmt.Errorf("not allowed to get the Secret %s/%s: ask for a role with the verb \"get\" on \"secrets\" named %s in namespace %s, or give a token of your own with HCLOUD_TOKEN", parts[0], parts[1], parts[1], parts[0])
	case err != nil:
		return "", fmt.Errorf("getting the Secret of --token-secret: %w", err)
	}
	text, ok := secret.Data[parts[2]]
	if !ok {
		return "",
			fmt.Errorf("the Secret %s/%s of --token-secret has no key %q: name the one that holds the token",
				parts[0], parts[1], parts[2])
	}
	return string(text), nil
}

// cloudClient returns a constructor of read-only clients for the cloud.
func cloudClient(token config.Token) func(string) (*hetzner.Client, error) {
	return func(endpoint string) (*hetzner.Client, error) {
		return hetzner.New(hetzner.Options{
			Endpoint: endpoint, Token: func() (string, error) { return token.Reveal(), nil },
			Application: "underlayctl", Version: version.Get().GitVersion,
			Registry: noRegistry{}, Transport: readOnly{requests.NewTransport()},
		})
	}
}

// noRegistry discards metrics, which underlayctl does not serve.
type noRegistry struct{}

func (noRegistry) Register(metrics.Registerable) error { return nil }

// readOnly rejects all requests except reads.
type readOnly struct{ next http.RoundTripper }

func (r readOnly) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet && request.Method != http.MethodHead {
		return nil,
			fmt.Errorf("underlayctl reads only, and does not send %s %s", request.Method, request.URL.Path)
	}
	return r.next.RoundTrip(request)
}
