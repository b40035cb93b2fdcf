package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"

	"github.com/underlay-ccm/underlay/internal/config"
	"github.com/underlay-ccm/underlay/internal/wiring"
)

type runE func(*cobra.Command, []string) error

// run validates flags, file and environment before upstream's application runs, so that a
// mistake ends the program before it listens or connects.
func (m *manager) run(opts *options.CloudControllerManagerOptions, upstream runE) runE {
	return func(cmd *cobra.Command, args []string) error {
		if cmd.Flag("version").Value.String() == string(verflag.VersionTrue) {
			// verflag would print the name Kubernetes.
			v := version.Get()
			fmt.Fprintln(cmd.OutOrStdout(), cmd.Name(), v.GitVersion, v.Platform, v.GoVersion)
			return nil
		}
		verflag.PrintAndExitIfRequested() // --version=raw
		wrong := errors.Join(
			m.configure(wiring.Flags(cmd.Flags())),
			checkKubeconfig(opts.Master, opts.Generic.ClientConnection.Kubeconfig),
		)
		if wrong != nil {
			return wrong
		}
		if err := upstream(cmd, args); err != nil {
			return printed{err}
		}
		m.stepDown()
		return nil
	}
}

// printed marks an error that upstream's application has already printed.
type printed struct{ error }

// checkKubeconfig loads the kubeconfig as upstream does, for an error with the flag and a remedy.
func checkKubeconfig(master, path string) error {
	var problem, remedy string
	var err error
	switch {
	case path != "":
		_, err = clientcmd.BuildConfigFromFlags(master, path)
		problem, remedy = "can't be used", "name a file that this process may read, whose current context has a server"
	case master == "":
		_, err = rest.InClusterConfig()
		problem, remedy = "none is given, and there is no ServiceAccount of a pod instead", "give one"
	}
	if err != nil {
		return &config.Error{
			Field: "--kubeconfig", Value: path, Problem: fmt.Sprintf("%s: %v", problem, err), Remedy: remedy,
			Cause: err,
		}
	}
	return nil
}
