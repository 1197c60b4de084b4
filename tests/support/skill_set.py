"""Skills as projects have them, with requests that need one of them; written before the code that ranks skills."""

from itertools import islice, product

SKILLS = {
    "pdf": "Extract text and tables from PDF files, fill PDF forms, merge and split documents. Use when a request "
    "mentions PDFs, forms or document extraction.",
    "docx": "Create, edit and comment Word documents (.docx) with tracked changes and formatting preserved.",
    "xlsx": "Create and analyze spreadsheets (.xlsx, .csv) with formulas, charts and formatting.",
    "pptx": "Create and edit PowerPoint presentations: slides, layouts, speaker notes and themes.",
    "frontend-design": "Build distinctive, production-grade web interfaces, pages and components with good "
    "visual design.",
    "webapp-testing": "Test local web applications with Playwright: click through pages, take screenshots, "
    "read console logs.",
    "mcp-builder": "Guide for writing MCP servers that give a language model access to an external service.",
    "skill-creator": "Create or update a skill: folder layout, SKILL.md, scripts and references.",
    "brand-guidelines": "Apply the company's brand colours, typography and tone of voice to any artifact.",
    "internal-comms": "Write internal communications: status reports, newsletters, incident summaries, FAQs for staff.",
    "algorithmic-art": "Generate art with p5.js using seeded randomness and flow fields.",
    "theme-factory": "Style artifacts such as slides, docs and landing pages with a preset theme of colours and fonts.",
    "slack-gif": "Make animated GIFs that fit the size limits of Slack.",
    "test-driven-development": "Write the failing test first, then the code; red, green, refactor for every "
    "feature or fix.",
    "systematic-debugging": "Find the root cause of a bug before proposing a fix: reproduce, isolate, form "
    "hypotheses, verify.",
    "code-review": "Review a diff or pull request for correctness, security and style, and write comments.",
    "git-worktrees": "Work on several branches at once in separate git worktrees.",
    "commit-messages": "Write conventional commit messages from the staged changes.",
    "release-notes": "Write a changelog and release notes from merged pull requests and tags.",
    "semantic-versioning": "Decide the next version number from the changes and bump it in all files.",
    "database-migrations": "Write and run schema migrations (Alembic, Flyway) without downtime, with a rollback.",
    "sql-optimization": "Analyze slow queries with EXPLAIN, add indexes and rewrite joins.",
    "docker-images": "Write small, secure Dockerfiles with multi-stage builds and layer caching.",
    "kubernetes-manifests": "Write and check Kubernetes deployments, services, ingresses and Helm charts.",
    "terraform-modules": "Write Terraform modules for cloud infrastructure and review plans before apply.",
    "github-actions": "Write and debug GitHub Actions workflows: matrices, caches, secrets, releases.",
    "incident-response": "Handle a production outage: triage, mitigation, timeline and communication.",
    "postmortem": "Write a blameless postmortem with timeline, impact, causes and action items.",
    "oncall-handover": "Summarize the week's alerts and open issues for the next person on call.",
    "log-analysis": "Search and summarize application logs, group errors and find the first occurrence.",
    "performance-profiling": "Profile CPU and memory of Python and Node programs, read flame graphs and "
    "remove hot spots.",
    "load-testing": "Design and run load tests with k6 or Locust and interpret latency percentiles.",
    "security-audit": "Audit code and dependencies for vulnerabilities such as injection, XSS and leaked secrets.",
    "dependency-upgrades": "Upgrade outdated packages safely, one at a time, reading their changelogs.",
    "license-check": "Check the licenses of all dependencies against the company's allow list.",
    "api-design": "Design REST endpoints: resources, status codes, pagination, errors, versioning, OpenAPI.",
    "graphql-schema": "Design GraphQL types, queries and mutations, and avoid N+1 resolvers.",
    "python-packaging": "Package Python projects with pyproject.toml, build wheels and publish to PyPI.",
    "type-annotations": "Add type hints to untyped Python code and fix what pyright and mypy report.",
    "rust-errors": "Handle errors in Rust with thiserror and anyhow, and remove unwrap calls.",
    "react-components": "Write accessible React components with hooks, tests and stories.",
    "accessibility-audit": "Check pages against WCAG: contrast, keyboard navigation, screen readers, alt texts.",
    "i18n": "Make an application translatable: extract strings, plural rules, locale files.",
    "data-cleaning": "Clean messy tables with pandas: missing values, duplicates, types, outliers.",
    "data-visualization": "Choose and draw charts with matplotlib or plotly that answer the question.",
    "jupyter-notebooks": "Create, run and tidy notebooks; convert them to scripts or reports.",
    "machine-learning-experiments": "Train, track and compare models with fixed seeds, splits and metrics.",
    "prompt-engineering": "Write and evaluate prompts for language models with examples and test sets.",
    "invoice-processing": "Read invoices and receipts, check totals and taxes, and book them into the ledger.",
    "expense-reports": "Collect receipts of a trip and fill in the expense report under the travel policy.",
    "contract-review": "Check a contract for risky clauses, deadlines and missing terms.",
    "gdpr-requests": "Answer requests for access to, or erasure of, personal data within the legal deadline.",
    "meeting-minutes": "Turn a transcript of a meeting into minutes with decisions, owners and due dates.",
    "job-postings": "Write job advertisements and interview questions for open positions.",
    "onboarding": "Prepare accounts, reading list and first tasks for a new colleague.",
    "customer-support": "Answer customers' tickets in our tone, with links to the help centre, and escalate refunds.",
    "blog-posts": "Draft and edit articles for the company blog with headline, structure and sources.",
    "seo-audit": "Check titles, meta descriptions, sitemaps and page speed for search engines.",
    "translation": "Translate documents between languages and keep terminology and formatting.",
    "ffmpeg-video": "Cut, convert, subtitle and compress audio and video with ffmpeg.",
    "image-editing": "Resize, crop, convert and annotate pictures with ImageMagick or Pillow.",
    "arduino-firmware": "Write and flash firmware for Arduino and ESP32 boards with PlatformIO.",
}
"""Descriptions by name."""

REQUESTS = (
    ("fill in the tax form in forms/w9.pdf with our company data", "pdf"),
    ("accept all tracked changes in the Word file and add a table of contents", "docx"),
    ("make me a spreadsheet with the monthly revenue and a sum at the bottom", "xlsx"),
    ("turn this outline into ten slides for the board", "pptx"),
    ("our landing page looks boring, give it a fresh design", "frontend-design"),
    (
        "click through the signup in the browser and tell me whether it still works",
        "webapp-testing",
    ),
    ("I want the agent to talk to our ticket system, write an MCP server for it", "mcp-builder"),
    ("write the weekly status report for the team", "internal-comms"),
    ("add a feature to export users as CSV, and write the tests first", "test-driven-development"),
    ("the import sometimes hangs and nobody knows why, find the cause", "systematic-debugging"),
    ("look over pull request 482 and leave comments", "code-review"),
    ("commit what is staged with a decent message", "commit-messages"),
    ("summarize what changed since v2.3 for the release", "release-notes"),
    ("add a column last_login to the users table without downtime", "database-migrations"),
    ("this query takes 14 seconds, speed it up with an index", "sql-optimization"),
    ("our Docker image is 2 GB, shrink it", "docker-images"),
    ("deploy the new service to the cluster with a Helm chart", "kubernetes-manifests"),
    ("the CI workflow on GitHub fails only on Windows", "github-actions"),
    ("write up yesterday's outage: timeline, causes, what we do about it", "postmortem"),
    ("which errors are new in logs/app.log since midnight?", "log-analysis"),
    ("the script uses 8 GB of memory, profile it", "performance-profiling"),
    ("can we survive 5000 users at once? run a load test", "load-testing"),
    ("are there any security vulnerabilities in this repository?", "security-audit"),
    ("update our outdated npm packages", "dependency-upgrades"),
    ("do we use any GPL library?", "license-check"),
    ("propose REST endpoints for orders and refunds with pagination", "api-design"),
    ("publish this package to PyPI", "python-packaging"),
    ("add types to utils.py so that mypy is happy", "type-annotations"),
    ("get rid of the unwraps in the Rust parser", "rust-errors"),
    (
        "can blind people use our checkout? check the keyboard and screen reader support",
        "accessibility-audit",
    ),
    ("prepare the app for translation into French and Polish: extract all strings", "i18n"),
    ("there are duplicates and missing values in customers.csv, clean it", "data-cleaning"),
    ("draw a chart of sales per region", "data-visualization"),
    ("book the invoices in the inbox folder", "invoice-processing"),
    ("is there anything risky in this contract?", "contract-review"),
    ("a customer wants all her personal data deleted", "gdpr-requests"),
    ("here is the transcript of the call, write the minutes", "meeting-minutes"),
    ("answer ticket 9931, she wants a refund", "customer-support"),
    ("cut the first 30 seconds off demo.mp4 and add subtitles", "ffmpeg-video"),
    ("crop the photos to squares of 512 pixels", "image-editing"),
)
"""Requests in users' words, each with the skill that it needs."""

_SUBJECTS = (
    ("aws-lambda", "AWS Lambda functions"),
    ("azure-storage", "Azure storage accounts"),
    ("bigquery", "BigQuery data sets"),
    ("cassandra", "Cassandra clusters"),
    ("django", "Django applications"),
    ("elasticsearch", "Elasticsearch indexes"),
    ("fastapi", "FastAPI services"),
    ("go-services", "services written in Go"),
    ("grafana", "Grafana dashboards and alerts"),
    ("kafka", "Kafka topics and consumers"),
    ("mongodb", "MongoDB collections"),
    ("nginx", "nginx servers and proxies"),
    ("postgres", "PostgreSQL databases"),
    ("rabbitmq", "RabbitMQ queues"),
    ("rails", "Ruby on Rails applications"),
    ("redis", "Redis caches"),
    ("salesforce", "Salesforce objects and reports"),
    ("sap", "SAP orders and invoices"),
    ("shopify", "Shopify stores and orders"),
    ("spark", "Spark jobs"),
    ("stripe", "Stripe payments and refunds"),
    ("swift-apps", "iOS apps written in Swift"),
    ("vue", "Vue components"),
)
_ACTIVITIES = (
    ("setup", "Set up {}, with the team's conventions for names and folders."),
    ("testing", "Write and run tests for {}, with fixtures and test data."),
    ("review", "Review changes of {} for errors, security and style."),
    ("debugging", "Debug failures of {}: read logs, reproduce, and find the cause."),
    ("deployment", "Deploy {} to staging and production, with a rollback."),
    ("monitoring", "Monitor {}: metrics, alerts and dashboards."),
    ("migration", "Migrate {} to a new version without downtime."),
    ("performance", "Measure and improve the performance of {}."),
    ("security", "Harden {}: permissions, secrets and audit logs."),
    ("backup", "Back up and restore {}, and test the restore."),
    ("documentation", "Document {} for users and developers."),
    ("costs", "Find and reduce the costs of {}."),
    ("data-export", "Export data of {} as CSV or JSON reports."),
    ("onboarding", "Explain {} to a new colleague, with first tasks."),
    ("refactoring", "Refactor {} in small steps with unchanged behaviour."),
    ("incident", "Handle incidents of {}: triage, mitigation, communication."),
    ("upgrade", "Upgrade libraries of {} and read their release notes."),
    ("access", "Grant and revoke access to {} after an approval."),
    ("cleanup", "Remove unused parts of {} after a check of their use."),
    ("quality", "Check the quality of data in {}: duplicates, missing and outdated values."),
)


def skills(number):
    """This many skills: the realistic ones, then generated ones that share their words."""
    generated = (
        (f"{subject}-{activity}", about.format(words))
        for (subject, words), (activity, about) in product(_SUBJECTS, _ACTIVITIES)
    )
    return dict(islice([*SKILLS.items(), *generated], number))


def write(folder, entries, body="Follow these steps.\n"):
    """Write skills as folders with a SKILL.md."""
    for name, about in entries.items():
        (folder / name).mkdir(parents=True)
        (folder / name / "SKILL.md").write_text(
            f"---\nname: {name}\ndescription: {about}\n---\n# {name}\n\n{body}"
        )
