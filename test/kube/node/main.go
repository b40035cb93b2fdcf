// Command node contains the programs of a machine in a kubeadm cluster beside the control plane's:
// the real kubelet, kubeadm and kube-scheduler in one file, selected by the first argument or by
// the file's name, as in busybox.
//
// It is separate from the command above it, so that it isn't built and loaded if no machines are
// needed.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmerrors "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps each name to its main function, which reads os.Args.
func programs() map[string]func() {
	return map[string]func(){
		"kubelet":        func() { os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background()))) },
		"kubeadm":        func() { kubeadmerrors.HandleError(kubeadm.Run()) },
		"kube-scheduler": func() { os.Exit(cli.Run(scheduler.NewSchedulerCommand())) },
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
	fmt.Fprintf(os.Stderr, "usage: %s kubelet|kubeadm|kube-scheduler [arguments]\nnot one of these: %s\n",
		filepath.Base(os.Args[0]), strings.Join(os.Args[1:], " "))
	os.Exit(2)
}
