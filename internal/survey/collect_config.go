package survey

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/wiring"
)

const (
	// managerName is the name, the name label and the container of the CCM in deploy/.
	managerName   = "underlay-ccm"
	nameLabel     = "app.kubernetes.io/name"
	configMapName = "underlay-config"
	configKey     = "config.yaml"
)

// Configuration is the source of the CCM's settings.
type Configuration struct {
	// File is the content of the file that the user passed. If it is nil, the ConfigMap that the
	// CCM mounts is read. FileName appears in messages.
	File     []byte
	FileName string
	// Flags are flags of the CCM that the user passed, such as --cluster-cidr=10.244.0.0/16.
	// Each overrides that of the Deployment.
	Flags []string
}

// The CCM's flags of upstream that name its Lease.
const (
	leaseNamespaceFlag = "--leader-elect-resource-namespace"
	leaseNameFlag      = "--leader-elect-resource-name"
)

// ManagerFlags returns the CCM's flags that affect the reports, besides the one of its file.
func ManagerFlags() *pflag.FlagSet {
	fs := pflag.NewFlagSet(managerName, pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	for _, name := range append(config.FlagNames(), leaseNamespaceFlag, leaseNameFlag) {
		fs.String(strings.TrimPrefix(name, "--"), "", "")
	}
	for _, boolean := range []string{"allocate-node-cidrs", "configure-cloud-routes"} {
		fs.Lookup(boolean).NoOptDefVal = "true"
	}
	return fs
}

func parseManagerFlags(args []string) (config.Flags, error) {
	fs := ManagerFlags()
	fs.ParseErrorsAllowlist.UnknownFlags = true // flags of the upstream CCM without effect here
	fs.String(strings.TrimPrefix(config.FileFlag, "--"), "", "")
	if err := fs.Parse(args); err != nil {
		return nil, fmt.Errorf("flags of %s: %w", managerName, err)
	}
	return wiring.Flags(fs), nil
}

// giveFlags returns the remedy if the CCM's flags can't be read. The defaults are no substitute:
// with them a cluster with pools and routes appears to have neither.
func (c *collector) giveFlags() string {
	return "give those that it runs with, as in --manager-flag=--cluster-cidr=10.244.0.0/16 --manager-flag=--allocate-node-cidrs " +
		"--manager-flag=--configure-cloud-routes, and its file with --cloud-config unless it is the ConfigMap " + c.s.Namespace + "/" + configMapName
}

// config reads and validates the settings as the CCM does, with the same warnings and errors.
func (c *collector) config(ctx context.Context) error {
	template, err := c.manager(ctx)
	blind := template == nil && len(c.Configuration.Flags) == 0
	switch {
	case err != nil && useless(err):
		return err
	case err != nil && blind:
		return fmt.Errorf("%w; or %s", err, c.giveFlags())
	case blind:
		return errNotSeen("there is no Deployment " + managerName + " in " + c.s.Namespace +
			", so its flags are not known: name the namespace that it is in with --namespace, or " +
			c.giveFlags())
	}
	var args []string
	env, from := environment{}, "no Deployment "+managerName+" is seen in "+c.s.Namespace
	if template != nil {
		container := managerContainer(template)
		args, from = slices.Concat(container.Command, container.Args), "flags of the Deployment "+
			c.s.Namespace+"/"+managerName
		env = environmentOf(container)
	}
	flags, err := parseManagerFlags(slices.Concat(args, c.Configuration.Flags))
	if err != nil {
		return err
	}
	c.s.LeaseName = types.NamespacedName{
		Namespace: cmp.Or(flags[leaseNamespaceFlag], c.s.LeaseName.Namespace),
		Name:      cmp.Or(flags[leaseNameFlag], c.s.LeaseName.Name),
	}
	file, fileFrom, err := c.configFile(ctx, template, flags[config.FileFlag])
	if err != nil {
		return err
	}
	if len(c.Configuration.Flags) > 0 {
		from += ", and " + strings.Join(c.Configuration.Flags, " ")
	}
	if len(env.hidden) > 0 {
		from += "; not the values of " + strings.Join(env.hidden, ", ") + ", which come from elsewhere"
	}
	c.s.ConfigFrom = fileFrom + "; " + from
	return c.load(flags, file, env, template != nil)
}

type environment struct {
	values map[string]string
	hidden []string // variables whose values come from a Secret or a ConfigMap
	set    []string // as of os.Environ, with placeholders for unreadable values
}

const tokenVariable = "HCLOUD_TOKEN"

// secretVariables returns the CCM's variables with secrets, whose values are never read.
func secretVariables() []string { return []string{tokenVariable, "ROBOT_USER", "ROBOT_PASSWORD"} }

// anyToken replaces each secret, so that the configuration validates.
const anyToken = "a-token-of-the-manager-that-is-not-read"

func environmentOf(container *corev1.Container) environment {
	e := environment{values: map[string]string{}}
	for _, v := range container.Env {
		switch {
		case slices.Contains(secretVariables(), v.Name):
			e.values[v.Name] = anyToken
		case v.ValueFrom == nil:
			e.values[v.Name] = v.Value
		case strings.HasPrefix(v.Name, "HCLOUD_") || strings.HasPrefix(v.Name, "ROBOT_"):
			e.hidden = append(e.hidden, v.Name)
			e.set = append(e.set, v.Name+"=hidden")
		}
		e.set = append(e.set, v.Name+"="+e.values[v.Name])
	}
	return e
}

// load validates the settings. If the environment is not known, it assumes that the token is
// set.
func (c *collector) load(flags config.Flags, file []byte, env environment, known bool) error {
	delete(flags, config.FileFlag) // the content is passed as file
	try := func() (config.Config, []config.Warning, error) {
		getenv := func(name string) string { return env.values[name] }
		return config.Load(flags, file, getenv, func(string) ([]byte, error) {
			return []byte(anyToken), nil
		})
	}
	loaded, warnings, err := try()
	if err != nil && !known {
		env.values = map[string]string{tokenVariable: anyToken}
		loaded, warnings, err = try()
	}
	c.s.ConfigWarnings = append(warnings, config.UnknownVariables(env.set)...)
	if errors.As(err, &c.s.ConfigErrors) {
		return errNotSeen(fmt.Sprintf("%s: wrong: %v", c.s.ConfigFrom, err))
	}
	if err != nil {
		return err
	}
	c.s.Config = loaded
	return nil
}

func (c *collector) manager(ctx context.Context) (*corev1.PodTemplateSpec, error) {
	found, err := c.Client.AppsV1().Deployments(c.s.Namespace).List(ctx, metav1.ListOptions{
		LabelSelector: nameLabel + "=" + managerName,
	})
	if err != nil {
		return nil, &kubeError{"list", "deployments.apps", inNamespace(c.s.Namespace, ""), err}
	}
	for i := range found.Items {
		if t := &found.Items[i].Spec.Template; len(t.Spec.Containers) > 0 {
			return t, nil
		}
	}
	return nil, nil
}

// managerContainer returns the container named managerName, or else the first container.
func managerContainer(t *corev1.PodTemplateSpec) *corev1.Container {
	all := t.Spec.Containers
	if i := slices.IndexFunc(all, func(c corev1.Container) bool {
		return c.Name == managerName
	}); i >= 0 {
		return &all[i]
	}
	return &all[0]
}

// configFile returns the user's configuration file, or else the file that the CCM mounts.
func (c *collector) configFile(
	ctx context.Context, template *corev1.PodTemplateSpec, mounted string,
) (content []byte, from string, err error) {
	if c.Configuration.File != nil {
		return c.Configuration.File, "file " + c.Configuration.FileName, nil
	}
	name, key := configMapName, configKey
	if template != nil {
		if mounted == "" {
			return nil, "no configuration file: the CCM has no --cloud-config", nil
		}
		if n, k, ok := mountedMap(template, mounted); ok {
			name, key = n, k
		}
	}
	found, err := c.Client.CoreV1().ConfigMaps(c.s.Namespace).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, "", errNotSeen(fmt.Sprintf("there is no ConfigMap %s/%s: name the CCM's configuration file with --cloud-config", c.s.Namespace, name))
	case err != nil:
		return nil, "", &kubeError{"get", "configmaps", inNamespace(c.s.Namespace, name), err}
	}
	text, ok := found.Data[key]
	if !ok {
		return nil, "", errNotSeen(fmt.Sprintf("the ConfigMap %s/%s has no key %s: name the CCM's configuration file with --cloud-config", c.s.Namespace, name, key))
	}
	return []byte(text), fmt.Sprintf("ConfigMap %s/%s (%s)", c.s.Namespace, name, key), nil
}

// mountedMap returns the ConfigMap and the key behind a file in the CCM's container.
func mountedMap(t *corev1.PodTemplateSpec, file string) (name, key string, ok bool) {
	for _, mount := range managerContainer(t).VolumeMounts {
		if path.Dir(file) != path.Clean(mount.MountPath) {
			continue
		}
		for _, v := range t.Spec.Volumes {
			if v.Name != mount.Name || v.ConfigMap == nil {
				continue
			}
			key := path.Base(file)
			for _, item := range v.ConfigMap.Items {
				if item.Path == key {
					key = item.Key
				}
			}
			return v.ConfigMap.Name, key, true
		}
	}
	return "", "", false
}
