// Command e2e runs upstream's end-to-end specs of the network against a cluster, like upstream's
// e2e.test, with the same flags. Upstream's own suite prepares it; specs of other groups are
// included only as far as that requires.
//
// It is its own module, so that requirements of specs stay out of the control plane's, which is
// built more often. Its versions are those of test/kube, so that most of it is compiled already.
package main

import (
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/logs"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/test/e2e" // the suite: setup and teardown of all specs
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	e2etestingmanifests "k8s.io/kubernetes/test/e2e/testing-manifests"

	// The framework's extensions, as in upstream's program.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	_ "k8s.io/kubernetes/test/utils/ktesting/format"

	// The specs.
	_ "k8s.io/kubernetes/test/e2e/common/network"
	_ "k8s.io/kubernetes/test/e2e/network"
)

// outcome is notified by ginkgo when a spec has failed.
type outcome struct{ failed bool }

func (o *outcome) Fail() { o.failed = true }

func main() {
	run := flag.String("run-id", "", "The value of the label e2e-run on the run's Namespaces; any, if empty.")
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	if *run != "" {
		framework.RunID = types.UID(*run)
	}
	testfiles.AddFileSource(e2etestingmanifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(&framework.TestContext)

	logs.InitLogs()
	klog.EnableContextualLogging(true)
	gomega.RegisterFailHandler(framework.Fail)
	var o outcome
	suite, reporter := framework.CreateGinkgoConfig()
	ginkgo.RunSpecs(&o, "Kubernetes e2e suite", suite, reporter)
	logs.FlushLogs()
	if o.failed {
		os.Exit(1)
	}
}
