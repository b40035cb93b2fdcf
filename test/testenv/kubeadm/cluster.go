//go:build linux

package kubeadm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/machine"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// Environment is set before each command, as for root in a shell on a server.
const Environment = "export KUBECONFIG=/etc/kubernetes/admin.conf HOME=/root HCLOUD_TOKEN=" + cluster.Token + "; cd /root; "

// First is the name of the server on which kubeadm creates the control plane, and on which kubectl
// is used.
const First = "control-1"

// Options configure a cluster.
type Options struct {
	// Dir is a folder for machines and logs, which the caller removes. Its file system has to
	// support overlays.
	Dir string
	// Packed is the folder that Pack has created.
	Packed string
	// Metal is a cluster on machines without a provider.
	Metal bool
}

// Cluster is a cluster on servers of the simulated cloud. Its methods are for one goroutine, except
// those that run commands.
type Cluster struct {
	Lab     *netlab.Lab
	Servers map[string]*Server
	// Admin is the control-plane server on which kubectl is used; First by default.
	Admin string

	options  Options
	programs machine.Programs
}

// Server is a server of the provider, and the machine that runs as it.
type Server struct {
	*machine.Machine
	Cables *netlab.Machine
}

// Start starts the cloud, or the networks of machines, without servers.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	programs, err := machine.Build(ctx, os.Stderr)
	if err != nil {
		return nil, err
	}
	lab, err := netlab.Start(context.WithoutCancel(ctx), netlab.Options{
		MachinesOnly: true, Metal: o.Metal, Dir: o.Dir,
	})
	if err != nil {
		return nil, err
	}
	return &Cluster{
		Lab: lab, Servers: map[string]*Server{}, Admin: First, options: o, programs: programs,
	}, nil
}

// Stop removes everything.
func (c *Cluster) Stop() error {
	var err error
	for name := range c.Servers {
		err = errors.Join(err, c.Servers[name].Remove())
	}
	c.Lab.Stop()
	return err
}

// Rent creates a server and boots it for the first time, with user data that is executed as
// cloud-init would, after each text in it is replaced by the next. Then it has all images.
func (c *Cluster) Rent(ctx context.Context, name string, instead ...string) (*Server, error) {
	cables, err := c.Lab.Rent(ctx, name)
	if err != nil {
		return nil, err
	}
	m, err := machine.New(ctx, machine.Options{
		Name: name, Dir: filepath.Join(c.options.Dir, "root-"+name), Network: cables.Namespace, Programs: c.programs,
	})
	if err != nil {
		return nil, err
	}
	s := &Server{m, cables}
	c.Servers[name] = s
	if err := s.Boot(ctx); err != nil {
		return nil, err
	}
	if err := Initialize(ctx, m, instead...); err != nil {
		return nil, fmt.Errorf("cloud-init on %s: %w", name, err)
	}
	for _, archive := range Archives() {
		if err := s.Import(ctx, filepath.Join(c.options.Packed, archive)); err != nil {
			return nil, err
		}
	}
	underlayctl, err := os.ReadFile(filepath.Join(c.options.Packed, "underlayctl"))
	if err != nil {
		return nil, err
	}
	return s, s.WriteFile("/usr/local/bin/underlayctl", underlayctl, 0o755)
}

// CutPower disconnects a server from all networks and ends everything that runs on it, so that its
// connections are never closed for their peers. Reboot starts it again.
func (s *Server) CutPower(ctx context.Context) error {
	return errors.Join(s.Cables.Unplug(ctx), s.PullPlug())
}

// Reboot powers a server off and on: the state of its network is lost.
func (s *Server) Reboot(ctx context.Context) error {
	if err := s.PullPlug(); err != nil {
		return err
	}
	if err := s.Cables.Renew(ctx); err != nil {
		return err
	}
	s.SetNetwork(s.Cables.Namespace)
	return s.Boot(ctx)
}

// Return deletes a server at once, in the cloud too. Its Node is left to the cluster.
func (c *Cluster) Return(ctx context.Context, name string) error {
	s := c.Servers[name]
	delete(c.Servers, name)
	return errors.Join(s.Remove(), s.Cables.Remove(ctx))
}

// On runs a command in a shell of a server and returns its output.
func (c *Cluster) On(ctx context.Context, name, command string) (string, error) {
	return c.Feed(ctx, name, "", command)
}

// Feed is On with standard input.
func (c *Cluster) Feed(ctx context.Context, name, typed, command string) (string, error) {
	return c.Servers[name].Feed(ctx, strings.NewReader(typed), "bash", "-c", Environment+command)
}

// PutInit writes the example's init.yaml into root's home on the first server. Each further text in
// it is replaced by the next.
func (c *Cluster) PutInit(ctx context.Context, instead ...string) error {
	content, err := Edited(ctx, c.example()+"init.yaml", slices.Concat(c.edits(First), []string{
		// The size of the connection table belongs to the kernel, not to a machine within it.
		"mode: nftables", "mode: nftables\nconntrack: {maxPerCore: 0, min: 0}",
	}, instead)...)
	if err != nil {
		return err
	}
	return c.Servers[First].put("init.yaml", content)
}

// PutManifests writes underlay.yaml there: the manifests that the tutorial's helm command installs.
func (c *Cluster) PutManifests() error {
	content, err := c.manifests()
	if err != nil {
		return err
	}
	return c.Servers[First].put("underlay.yaml", content)
}

// put writes a file into root's home.
func (s *Server) put(name, content string) error {
	return s.WriteFile("/root/"+name, []byte(content), 0o600)
}

// The examples' placeholder of a token.
const noToken = "abcdef.0123456789abcdef"

var (
	noHash  = "sha256:" + strings.Repeat("0", 64)
	joining = regexp.MustCompile(`--token (\S+) +--discovery-token-ca-cert-hash (\S+)`)
)

// secret returns the token and the hash with which servers join.
func (c *Cluster) secret(ctx context.Context) (token, hash string, err error) {
	printed, err := c.On(ctx, c.Admin, "kubeadm token create --print-join-command")
	if err != nil {
		return "", "", err
	}
	found := joining.FindStringSubmatch(printed)
	if found == nil {
		return "", "", errors.New("no token in what kubeadm prints: " + printed)
	}
	return found[1], found[2], nil
}

// PutJoin writes the example's join.yaml into root's home on a server, with a new token. Each
// further text in it is replaced by the next.
func (c *Cluster) PutJoin(ctx context.Context, name string, instead ...string) error {
	token, hash, err := c.secret(ctx)
	if err != nil {
		return err
	}
	content, err := Edited(ctx, c.example()+"join.yaml", slices.Concat(c.edits(name), []string{noToken, token, noHash, hash}, instead)...)
	if err != nil {
		return err
	}
	return c.Servers[name].put("join.yaml", content)
}

// RentJoined creates a server that joins by its user data, in which each further text is replaced
// by the next. Its pods wait for their images.
func (c *Cluster) RentJoined(ctx context.Context, name string, instead ...string) (*Server, error) {
	token, hash, err := c.secret(ctx)
	if err != nil {
		return nil, err
	}
	// The script also compares with the example's token, which must not be replaced there.
	return c.Rent(ctx, name, append([]string{
		"token: " + noToken + "\n", "token: " + token + "\n", noHash, hash, "dual_stack=no\n", "dual_stack=yes\n",
	}, instead...)...)
}
