//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/underlay-ccm/underlay/test/testenv/cluster"
	"github.com/underlay-ccm/underlay/test/testenv/kubeadm"
	"github.com/underlay-ccm/underlay/test/testenv/netlab"
)

// patience limits waits.
const patience = 3 * time.Minute

// names are the servers'.
func names() []string { return []string{kubeadm.First, "worker-1", "worker-2"} }

func (s *show) rent(ctx context.Context) error {
	for _, name := range names() {
		server, err := s.Rent(ctx, name)
		if err != nil {
			return err
		}
		fmt.Printf("  %-10s %s in the network, %s and %s outside\n", name, server.Cables.Private, server.Cables.Public.IPv4, server.Cables.Public.IPv6)
	}
	return nil
}

func (s *show) install(ctx context.Context) error {
	if err := s.PutInit(ctx); err != nil {
		return err
	}
	return s.follow(ctx, kubeadm.First, "", "kubeadm init")
}

func (s *show) underlay(ctx context.Context) error {
	if err := s.PutManifests(); err != nil {
		return err
	}
	if err := s.follow(ctx, kubeadm.First, cluster.Token, "kubectl -n kube-system create secret"); err != nil {
		return err
	}
	fmt.Print(s.painter.Note("what helm makes of deploy/chart with the example's values:"))
	if err := s.enter(ctx, kubeadm.First, "", "kubectl apply -f underlay.yaml", false); err != nil {
		return err
	}
	return s.follow(ctx, kubeadm.First, "", "kubectl -n kube-system rollout status deployment/underlay-ccm")
}

func (s *show) join(ctx context.Context) error {
	for _, name := range names()[1:] {
		if err := s.PutJoin(ctx, name); err != nil {
			return err
		}
		if err := s.follow(ctx, name, "", "kubeadm join"); err != nil {
			return err
		}
	}
	for _, command := range []string{
		"kubectl wait --for=condition=Ready node --all --timeout=3m", "kubectl -n kube-system rollout status daemonset/underlay-agent",
	} {
		if err := s.enter(ctx, kubeadm.First, "", command, false); err != nil {
			return err
		}
	}
	return s.enter(ctx, kubeadm.First, "", "kubectl get nodes -o wide", true)
}

func (s *show) pods(ctx context.Context) error {
	if err := s.follow(ctx, kubeadm.First, "", "kubectl create deployment web", "--image=nginx", "--image="+kubeadm.EchoImage); err != nil {
		return err
	}
	if err := s.enter(ctx, kubeadm.First, "", "kubectl rollout status deployment/web", false); err != nil {
		return err
	}
	if err := s.enter(ctx, kubeadm.First, "", "kubectl get pods -o wide", true); err != nil {
		return err
	}
	var pods corev1.PodList
	out, err := s.On(ctx, kubeadm.First, "kubectl get pods -l app=web -o json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &pods)
	}
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		// The container has no program for it, but its namespace is accessible.
		look := "for pod in $(ip netns list | cut -d' ' -f1); do ip -n $pod -brief address show dev eth0 | grep -w " + p.Status.PodIP + "; done"
		out, err := s.On(ctx, p.Spec.NodeName, look)
		if err != nil {
			return err
		}
		fmt.Printf("  inside %s on %s\n    %s\n", p.Name, p.Spec.NodeName, strings.TrimSpace(out))
	}
	return nil
}

func (s *show) balance(ctx context.Context) error {
	if err := s.follow(ctx, kubeadm.First, "", "kubectl expose deployment web", "--port=80", fmt.Sprintf("--port=80 --target-port=%d", kubeadm.EchoPort)); err != nil {
		return err
	}
	var at netip.Addr
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			out, err := s.On(ctx, kubeadm.First, "kubectl get service web -o jsonpath='{.status.loadBalancer.ingress[0].ip}'")
			if err != nil || out == "" {
				return false, err
			}
			at, err = netip.ParseAddr(out)
			return err == nil, err
		})
	if err != nil {
		return err
	}
	if err := s.enter(ctx, kubeadm.First, "", "kubectl get service web", true); err != nil {
		return err
	}
	fmt.Print(s.painter.Note("until the cloud's health checks have passed, nobody answers"))
	var answer netlab.Answer
	err = wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, patience, true,
		func(ctx context.Context) (bool, error) {
			// A request without a reply is sent again.
			answer, err = netlab.Ask(ctx, s.Lab.Outside(), "tcp", netip.AddrPortFrom(at, 80))
			return err == nil, nil
		})
	if err != nil {
		return err
	}
	fmt.Printf("  outside (%s) asks %s:80, and %s answers\n", netlab.OutsideIPv4, at, answer.Name)
	return nil
}

func (s *show) look(ctx context.Context) error {
	for _, command := range []string{"underlayctl nodes", "underlayctl routes", "underlayctl lb"} {
		if err := s.enter(ctx, kubeadm.First, "", command, true); err != nil {
			return err
		}
	}
	return nil
}

// follow runs one of the tutorial's commands, in which each text is replaced by the next.
func (s *show) follow(ctx context.Context, server, typed, begins string, instead ...string) error {
	command, err := s.page.Command(begins, instead...)
	if err != nil {
		return err
	}
	return s.enter(ctx, server, typed, command, false)
}

// enter runs a command on a server, and prints its output if it is to be seen.
func (s *show) enter(ctx context.Context, server, typed, command string, seen bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("%q took longer than %s", command, patience))
	defer cancel()
	fmt.Printf("  root@%s:~# %s\n", server, command)
	began := time.Now()
	out, err := s.Feed(ctx, server, typed, command)
	if err != nil {
		return err
	}
	if !seen {
		fmt.Print(s.painter.Note(fmt.Sprintf("%.1f s", time.Since(began).Seconds())))
		return nil
	}
	for line := range strings.Lines(out) {
		fmt.Print("  " + line)
	}
	return nil
}

// shell runs a shell for the user on the control-plane node.
func (s *show) shell(ctx context.Context) error {
	fmt.Println("\nA shell on " + kubeadm.First + ", with kubectl and underlayctl. Leave it by exit, and everything is removed.")
	in := s.Servers[kubeadm.First].Command(context.WithoutCancel(ctx), "bash", "-c", kubeadm.Environment+"export TERM="+os.Getenv("TERM")+" PS1='\\u@\\h:\\w# '; exec bash --norc -i")
	in.Stdin, in.Stdout, in.Stderr = os.Stdin, os.Stdout, os.Stderr
	in.SysProcAttr = nil // it has the terminal, and Ctrl-C is the shell's
	if err := in.Run(); err != nil {
		if left := (*exec.ExitError)(nil); !errors.As(err, &left) {
			return err
		} // with the status of the last command
	}
	return nil
}
