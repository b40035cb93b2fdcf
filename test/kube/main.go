// Command kube is a Kubernetes control plane in one file: the real etcd, kube-apiserver,
// kube-controller-manager, kube-proxy and kubectl, selected by the first argument or by the file's
// name, as in busybox. Tests and the demo run against it, never against imitations.
//
// It is its own module, so that k8s.io/kubernetes and its replace lines stay out of Underlay's. It
// is one program because the five share nearly all of their code, and linking it once keeps the
// build time acceptable.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.etcd.io/etcd/server/v3/etcdmain"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
)

// programs maps each name to its main function, which reads os.Args.
func programs() map[string]func() {
	return map[string]func(){
		"etcd":                    func() { etcdmain.Main(os.Args) },
		"kube-apiserver":          func() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) },
		"kube-controller-manager": func() { os.Exit(cli.Run(controllermanager.NewControllerManagerCommand())) },
		"kube-proxy":              func() { os.Exit(cli.Run(proxy.NewProxyCommand())) },
		"kubectl":                 kubectl,
	}
}

func kubectl() {
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
}

func main() {
	if run, ok := programs()[filepath.Base(os.Args[0])]; ok {
		run()
		return
	}
	if len(os.Args) > 1 {
		if run, ok := programs()[os.Args[1]]; ok {
			os.Args = os.Args[1:]
			run()
			return
		}
	}
	fmt.Fprintf(os.Stderr, "usage: %s etcd|kube-apiserver|kube-controller-manager|kube-proxy|kubectl [arguments]\nnot one of these: %s\n",
		filepath.Base(os.Args[0]), strings.Join(os.Args[1:], " "))
	os.Exit(2)
}
